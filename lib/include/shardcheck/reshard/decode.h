// Where the elements of a shard came from, as boxes of the file tensors before ranks cut them. Fingerprints
// say it element by element; on real weights lines (rows, or columns of a tensor that is cut along columns)
// are found again by hash.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/plan.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A box of a rank's file tensor whose elements have one kind of origin: consecutive elements of one file
/// tensor, zero bits, or bits that no element of the checkpoint has.
struct OriginBox {
  enum class Kind : std::uint8_t { element, zero, unknown };
  using Index = std::array<std::int64_t, Piece::kMaxRank>;

  Kind kind = Kind::unknown;
  Index local{};            // in the rank's file tensor
  Index size{1, 1, 1, 1};   // by dimension of it
  std::int64_t entry = -1;  // the file tensor it comes from, index into Layout::entries; -1 unless `element`
  Index origin{};           // where `local` lies in that tensor, before ranks cut it
  /// By dimension of the rank's tensor: 1 + the dimension of the origin that grows with it, negative where
  /// that falls, 0 for a dimension of size 1.
  std::array<std::int8_t, Piece::kMaxRank> step{};

  std::int64_t elements() const { return size[0] * size[1] * size[2] * size[3]; }
  bool operator==(const OriginBox&) const = default;
};

/// What one shard holds.
struct DecodedShard {
  /// What is kept of a shard whose elements lie in no order: a box is many times as large as an element.
  static constexpr std::size_t kMostBoxes = std::size_t{1} << 16;

  std::vector<OriginBox> boxes;  // disjoint, in row-major order of `local`; with those left out they fill it
  std::int64_t boxes_left_out = 0;
  std::array<std::int64_t, 3> elements_left_out{};  // in them, by kind
  /// Lines whose origin is a guess: they occur several times in the checkpoint, and so do all lines they
  /// arrived together with.
  std::int64_t ambiguous_lines = 0;

  /// Elements of that kind, in all boxes.
  std::int64_t elements(OriginBox::Kind of_kind) const;
  /// Leaves out all but the first `count` boxes.
  void keep(std::size_t count);
};

class ShardDecoder {
 public:
  virtual ~ShardDecoder() = default;
  /// `shard` is what `rank` holds of entry number `entry`. Throws InvalidInput when its shape or dtype is not
  /// the one that the layout and the source have.
  virtual DecodedShard decode(std::int64_t entry, int rank, const Tensor& shard) = 0;
  /// The file tensor before ranks cut it.
  virtual Tensor whole(std::int64_t entry) = 0;
};

/// Of f32 fingerprints. A tied copy counts as the tensor it is asked for. The layout must outlive the
/// decoder. Throws as `pieces` does.
std::unique_ptr<ShardDecoder> make_fingerprint_decoder(const Layout& layout);

/// Of any weights: lines along the dimension that ranks cut (the first, where none is), compared by their
/// XXH3 hash with the lines of every file tensor of `source`. Of equal lines the one that continues what came
/// before is taken, else the one that continues longest, else the expected one. Lines of zero bits are `zero`
/// unless the source has zeros in their place, or beside what is found beside them. Layout and source must
/// outlive the decoder. Throws InvalidInput when the source lacks a logical tensor.
std::unique_ptr<ShardDecoder> make_line_matcher(const Layout& layout, const TensorMap& source);

/// The same layout with every file tensor whole on one rank.
Layout unsharded(Layout layout);

}  // namespace shardcheck
