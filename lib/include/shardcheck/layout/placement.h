// How one tensor is laid out over the ranks of a tensor-parallel group: a sum type. A placement is always
// constructible as data (a wrong table must yield wrong numbers, not an exception); what cannot be
// represented is refused when it meets a shape and a degree, in the constructor of PlacedTensor.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shardcheck/tensor/tensor.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {

/// How a length is cut into `degree` contiguous parts. `even` refuses a remainder; `chunk` is torch.chunk
/// (ceil(n/t) each, trailing ranks may be short or empty); `balanced` is numpy.array_split (the first n % t
/// ranks hold one more).
enum class SplitPolicy : std::uint8_t { even, chunk, balanced };
std::string_view to_string(SplitPolicy policy) noexcept;

/// Half-open range [begin, end) of rank `rank`. Throws std::invalid_argument when `even` does not divide.
std::pair<std::int64_t, std::int64_t> part_of(SplitPolicy policy, std::int64_t length, int degree, int rank);

/// Every rank holds the whole tensor; gather verifies that replicas are byte-equal.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// One contiguous range of dimension `dim` per rank.
struct Shard {
  int dim = 0;
  SplitPolicy policy = SplitPolicy::even;
  bool operator==(const Shard&) const = default;
};

/// A stacked segment [begin, begin + items*unit) of a dimension; `unit` indices travel together (head_dim
/// for heads, 1 for plain rows).
struct Segment {
  std::int64_t begin = 0;
  std::int64_t items = 0;
  std::int64_t unit = 1;
  std::string label;  // "n_heads", "n_kv_heads", "paired range": used in messages only
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

/// Every rank holds an addend of the same shape; the tensor is their sum. `first_rank`: (b, 0, ..., 0);
/// `equal_share`: (b/t, ..., b/t).
struct Partial {
  enum class Encoding : std::uint8_t { first_rank, equal_share } encoding = Encoding::first_rank;
  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, Segments, Partial>;

/// Fused [Q; K; V] rows cut per head. Source: weight-sync-bench shardspec.py.
Segments head_partitioned(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t head_dim, int dim = 0);

/// Fused [first; second] rows cut in pairs; ranges are [begin, end). Throws UnsupportedLayout when the
/// ranges differ in length or overlap.
Segments fused_paired(std::pair<std::int64_t, std::int64_t> first,
                      std::pair<std::int64_t, std::int64_t> second, int dim = 0);

/// "replicate", "shard(dim=1)", "segments(dim=0, 256+64+64)", ...
std::string to_string(const Placement& placement);

/// Consecutive global indices [global, global + length) of one dimension.
struct Run {
  std::int64_t global = 0;
  std::int64_t length = 0;
  bool operator==(const Run&) const = default;
};

/// What one rank holds: the runs of dimension `dim`, in local order; every other dimension whole.
/// dim is -1 for a tensor held whole. Adjacent runs are merged and empty runs dropped.
struct Selection {
  int dim = -1;
  std::vector<Run> runs;
  std::int64_t length() const;
  bool operator==(const Selection&) const = default;
};

/// A tensor with its shape, placement and degree: what cannot be represented cannot be constructed.
class PlacedTensor {
 public:
  /// Throws UnsupportedLayout naming `name`, the sizes and the degree: degree < 1, dim outside the shape,
  /// `even` with a remainder, items of a segment not divisible by the degree, segments that overlap, leave
  /// the dimension or leave a part of it uncovered.
  PlacedTensor(std::string name, Shape shape, Placement placement, int degree);

  const std::string& name() const noexcept { return name_; }
  const Shape& shape() const noexcept { return shape_; }
  const Placement& placement() const noexcept { return placement_; }
  int degree() const noexcept { return degree_; }

  /// Throws std::out_of_range unless 0 <= rank < degree.
  Selection selection(int rank) const;
  Shape local_shape(int rank) const;

 private:
  std::string name_;
  Shape shape_;
  Placement placement_;
  int degree_;
};

}  // namespace shardcheck
