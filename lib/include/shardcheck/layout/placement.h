// How one tensor is laid out over the ranks of one mesh axis: a sum type. A placement is always
// constructible as data (a wrong table must yield wrong numbers, not an exception); what cannot be
// represented is refused when it meets a shape and a degree, in the constructor of PlacedTensor, which
// composes placements over several axes: each one cuts what the ones before it left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shardcheck/layout/mesh.h"
#include "shardcheck/tensor/tensor.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {

/// How a length is cut into `degree` contiguous parts. `even` refuses a remainder; `chunk` is torch.chunk
/// (ceil(n/t) each, trailing ranks may be short or empty); `balanced` is numpy.array_split (the first n % t
/// ranks hold one more); `padded` is chunk with every part padded to the same length, a multiple of a number.
enum class SplitPolicy : std::uint8_t { even, chunk, balanced, padded };
std::string_view to_string(SplitPolicy policy) noexcept;

/// Half-open range [begin, end) of rank `rank`, without padding. Throws std::invalid_argument when `even`
/// does not divide, and for `padded`, whose parts depend on the multiple too.
std::pair<std::int64_t, std::int64_t> part_of(SplitPolicy policy, std::int64_t length, int degree, int rank);

/// Every rank holds the whole tensor; gather verifies that replicas are byte-equal.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// One contiguous range of dimension `dim` per rank.
struct Shard {
  int dim = 0;
  SplitPolicy policy = SplitPolicy::even;
  std::int64_t multiple = 1;  // of the local length, for `padded`
  std::int64_t unit = 1;      // indices that travel together, for the other policies
  bool operator==(const Shard&) const = default;
};

/// A stacked segment [begin, begin + items*unit) of a dimension; `unit` indices travel together (head_dim
/// for heads, 1 for plain rows).
struct Segment {
  std::int64_t begin = 0;
  std::int64_t items = 0;
  std::int64_t unit = 1;
  std::string label;  // "n_heads", "n_kv_heads", "paired range": used in messages only
  /// More ranks than items: rank r holds item r / (degree / items), as vLLM and SGLang replicate KV heads.
  bool replicates = false;
  std::int64_t length() const { return items * unit; }
  bool operator==(const Segment&) const = default;
};

/// k segments stacked along `dim`, each cut on its own into whole items; a rank holds its part of every
/// segment, in segment order. The seed's HeadPartitioned (k = 3) and FusedPaired (k = 2) are the two
/// factories below.
struct Segments {
  int dim = 0;
  std::vector<Segment> segments;
  bool operator==(const Segments&) const = default;
};

/// DTensor's _StridedShard and Megatron's partition_stride: the dimension in `split_factor` chunks, each
/// chunk cut over the ranks, both by torch.chunk; a rank holds its part of every chunk in order.
struct Strided {
  int dim = 0;
  std::int64_t split_factor = 1;
  bool operator==(const Strided&) const = default;
};

/// Rows of k stacked parts dealt out in groups: group g is units[0] rows of the first part, then units[1] of
/// the second, ... Megatron's fused qkv (units {n*hd, hd, hd}, one group per KV head), NeoX and BLOOM (units
/// {hd, hd, hd}, one group per head), interleaved gate and up.
struct Interleave {
  std::int64_t groups = 1;
  std::vector<std::int64_t> units;
  bool operator==(const Interleave&) const = default;
};

/// The stacked parts interleaved, then cut evenly, also through groups.
struct Grouped {
  int dim = 0;
  Interleave interleave;
  bool operator==(const Grouped&) const = default;
};

/// `blocks` equal blocks for more ranks than blocks: rank r holds block r / (degree / blocks).
struct ReplicatedGroups {
  int dim = 0;
  std::int64_t blocks = 1;
  bool operator==(const ReplicatedGroups&) const = default;
};

/// Every rank holds an addend of the same shape; the tensor is their sum. `first_rank`: (b, 0, ..., 0);
/// `equal_share`: (b/t, ..., b/t).
struct Partial {
  enum class Encoding : std::uint8_t { first_rank, equal_share } encoding = Encoding::first_rank;
  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, Segments, Strided, Grouped, ReplicatedGroups, Partial>;

/// Fused [Q; K; V] rows cut per head. Source: weight-sync-bench shardspec.py.
Segments head_partitioned(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t head_dim, int dim = 0);

/// Fused [first; second] rows cut in pairs; ranges are [begin, end). Throws UnsupportedLayout when the
/// ranges differ in length or overlap.
Segments fused_paired(std::pair<std::int64_t, std::int64_t> first,
                      std::pair<std::int64_t, std::int64_t> second, int dim = 0);

/// "replicate", "shard(dim=1)", "segments(dim=0, 256+64+64)", ...
std::string to_string(const Placement& placement);

/// Stands for the global index of padding, which no global element has.
inline constexpr std::int64_t kPadding = -1;
/// What a list of runs, and what the lists of all ranks of one tensor together, may hold.
inline constexpr std::int64_t kMaxRuns = std::int64_t{1} << 24;

/// Consecutive global indices [global, global + length) of one dimension, or padding.
struct Run {
  std::int64_t global = 0;
  std::int64_t length = 0;
  bool operator==(const Run&) const = default;
};

/// Appends a run; one that continues the last is merged with it, an empty one dropped.
void append_run(std::vector<Run>& runs, Run run);
/// The runs that `inner`, positions in what `outer` lists, stands for.
std::vector<Run> compose_runs(const std::vector<Run>& outer, const std::vector<Run>& inner);
std::int64_t length_of(const std::vector<Run>& runs);
/// How much of it is padding.
std::int64_t padding_in(const std::vector<Run>& runs);
/// The order that undoes `runs`, an order of all indices below their length without padding.
std::vector<Run> inverse_runs(const std::vector<Run>& runs);

/// The order of interleaved parts: at each position of the interleaved dimension, the index in the stacked
/// one. Throws UnsupportedLayout when a unit or the groups are not positive or the length leaves 64 bits.
std::vector<Run> runs_of(const Interleave& interleave);
/// Positions [begin, begin + length) of it.
std::vector<Run> slice_of(const Interleave& interleave, std::int64_t begin, std::int64_t length);

/// What one rank holds along dimension `dim`: runs in local order. dim is -1, without runs, for a tensor held
/// whole. Adjacent runs are merged and empty runs dropped.
struct Selection {
  int dim = -1;
  std::vector<Run> runs;
  std::int64_t length() const;
  bool operator==(const Selection&) const = default;
};

/// A placement over the ranks of one axis.
struct AxisPlacement {
  Axis axis = Axis::tp;
  Placement placement;
  bool operator==(const AxisPlacement&) const = default;
};

/// A tensor with its shape, placements and mesh: what cannot be represented cannot be constructed. Copies
/// share what was computed.
class PlacedTensor {
 public:
  /// Over the ranks of tp alone. Throws UnsupportedLayout naming `name`, the sizes, the axis and its degree:
  /// degree < 1, dim outside the shape, `even` with a remainder, items of a segment not divisible by the
  /// degree (nor the degree by the items, where it replicates), segments that overlap, leave the dimension or
  /// leave a part of it uncovered, groups that do not fill the dimension, a dimension that is not whole
  /// units, a unit, a padded length or a split factor that is not positive.
  PlacedTensor(const std::string& name, Shape shape, Placement placement, int degree);
  /// Over a mesh, the placements applied in order, each to what the ones before left on a rank; an axis that
  /// has none replicates. Only the ranks at `held` hold the tensor. Throws as above; also for an axis that
  /// is named twice or cut over although `held` fixes it, for Partial on another axis than tp, next to
  /// another placement or over a mesh of other axes, and for more than kMaxRuns runs in all.
  PlacedTensor(std::string name, Shape shape, std::vector<AxisPlacement> placements, const Mesh& mesh,
               Coordinates held = {});
  /// Another tensor of the same shape, placements and mesh.
  PlacedTensor renamed(std::string name, Coordinates held) const;

  const std::string& name() const noexcept { return name_; }
  const Shape& shape() const noexcept { return body_->shape; }
  const Mesh& mesh() const noexcept { return body_->mesh; }
  const std::vector<AxisPlacement>& placements() const noexcept { return body_->placements; }
  /// Replicate for an axis without one.
  const Placement& placement(Axis axis = Axis::tp) const;
  /// Number of ranks of the mesh.
  int degree() const noexcept { return body_->mesh.size(); }

  const Coordinates& held() const noexcept { return held_; }
  bool held_by(int rank) const;
  /// The ranks that hold the tensor or a part of it, ascending.
  std::vector<int> holders() const { return mesh().ranks_at(held_); }
  /// Whether every holder holds all of it.
  bool is_replicated() const;
  bool is_partial() const { return std::holds_alternative<Partial>(placement()); }

  /// What a rank holds along every dimension that is cut, ascending. Throws std::out_of_range unless
  /// 0 <= rank < degree, std::logic_error for a rank that does not hold the tensor.
  const std::vector<Selection>& selections(int rank) const;
  /// The only one of them, or the whole. Throws std::logic_error for a tensor cut along two dimensions.
  Selection selection(int rank) const;
  /// Shape of the rank's tensor, padding included.
  Shape local_shape(int rank) const;

  /// Ranks of equal class hold the same; classes are numbered from 0 and a rank of each exists.
  int classes() const noexcept { return static_cast<int>(body_->selections.size()); }
  int class_of(int rank) const;
  const std::vector<Selection>& selections_of_class(int index) const {
    return body_->selections.at(static_cast<std::size_t>(index));
  }
  /// Equal for tensors that share shape, placements and mesh.
  const void* identity() const noexcept { return body_.get(); }

 private:
  /// What tensors of one shape, placement and mesh share.
  struct Body {
    Shape shape;
    std::vector<AxisPlacement> placements;
    Mesh mesh;
    std::vector<std::vector<Selection>>
        selections;  // by class, a number in the mixed radix of the placements
  };
  void compute_selections(Body& body) const;
  void require_free_axes() const;

  std::string name_;
  std::shared_ptr<const Body> body_;
  Coordinates held_;
};

}  // namespace shardcheck
