#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "box_builder.h"
#include "decoded_shape.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/decode.h"
#include "shardcheck/reshard/reshard.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

constexpr std::size_t kDims = Piece::kMaxRank;

/// Where an element lies in a whole file tensor, and the piece of its logical tensor around it.
struct Spot {
  std::int64_t entry = 0;
  OriginBox::Index at{};
  const Piece* piece = nullptr;
};

/// Elements of the piece from the spot on, along a step.
std::int64_t left_along(const Spot& spot, int step) {
  const std::size_t d = at(std::abs(step) - 1);
  const std::int64_t into = spot.at[d] - spot.piece->local[d];
  return step > 0 ? spot.piece->size[d] - into : into + 1;
}

/// The pieces of one logical tensor in one file tensor, ascending along the dimension that tells them apart.
struct PieceList {
  std::size_t dim = 0;
  std::vector<Piece> pieces;

  void sort() {
    const auto differ = [this](std::size_t d) {
      return std::ranges::any_of(pieces,
                                 [&](const Piece& p) { return p.begin[d] != pieces.front().begin[d]; });
    };
    while (dim + 1 < kDims && !differ(dim)) ++dim;
    std::ranges::sort(pieces, {}, [this](const Piece& piece) { return piece.begin[dim]; });
  }

  /// The only one that may hold the element, nullptr for none.
  const Piece* around(const OriginBox::Index& coordinate) const {
    if (pieces.size() == 1) return &pieces.front();
    const int along = pieces.front().logical_dim[dim];
    if (along < 0) return nullptr;
    const auto above = std::ranges::upper_bound(pieces, coordinate[at(along)], {},
                                                [this](const Piece& p) { return p.begin[dim]; });
    return above == pieces.begin() ? nullptr : &*std::prev(above);
  }
};

/// From a fingerprint to its place in the file tensors.
class CodeIndex {
 public:
  explicit CodeIndex(const Layout& layout) : tensors_(logical_tensors(layout.geometry)) {
    first_.push_back(1);
    for (const LogicalTensor& tensor : tensors_)
      first_.push_back(first_.back() + element_count(tensor.shape));
    for (const Piece& piece : pieces(unsharded(layout))) {
      lists_[{piece.logical, piece.entry}].pieces.push_back(piece);
    }
    for (auto& [key, list] : lists_) list.sort();
  }

  /// In the tensor `own` when that holds the element too.
  std::optional<Spot> locate(std::uint32_t code, std::int64_t own) const {
    if (code == 0 || code >= first_.back()) return std::nullopt;
    const auto above = std::upper_bound(first_.begin(), first_.end(), std::int64_t{code});
    const std::int64_t logical = above - first_.begin() - 1;
    auto found = lists_.find({logical, own});
    if (found == lists_.end()) found = lists_.lower_bound({logical, 0});
    if (found == lists_.end() || found->first.first != logical) return std::nullopt;
    const OriginBox::Index coordinate = coordinate_of(logical, std::int64_t{code} - first_[at(logical)]);
    const Piece* piece = found->second.around(coordinate);
    if (piece == nullptr) return std::nullopt;
    return spot_at(*piece, coordinate, found->first.second);
  }

 private:
  OriginBox::Index coordinate_of(std::int64_t logical, std::int64_t flat) const {
    const Shape& shape = tensors_[at(logical)].shape;
    OriginBox::Index coordinate{};
    for (std::size_t d = shape.size(); d-- > 0; flat /= shape[d]) coordinate[d] = flat % shape[d];
    return coordinate;
  }

  static std::optional<Spot> spot_at(const Piece& piece, const OriginBox::Index& coordinate,
                                     std::int64_t entry) {
    Spot spot{entry, piece.local, &piece};
    for (std::size_t d = 0; d < at(piece.dims); ++d) {
      if (piece.logical_dim[d] < 0) continue;
      const std::int64_t into = coordinate[at(piece.logical_dim[d])] - piece.begin[d];
      if (into < 0 || into >= piece.size[d]) return std::nullopt;
      spot.at[d] += into;
    }
    return spot;
  }

  std::vector<LogicalTensor> tensors_;
  std::vector<std::int64_t> first_;  // code of the first element of each, then one past the last
  std::map<std::pair<std::int64_t, std::int64_t>, PieceList> lists_;  // by (logical tensor, entry)
};

/// Runs of one innermost line of a shard.
class LineScanner {
 public:
  LineScanner(const CodeIndex& index, std::int64_t entry, std::span<const std::uint32_t> codes,
              std::size_t dim)
      : index_(index), entry_(entry), codes_(codes), dim_(dim) {}

  DecodedShard scan() const {
    SliceStack runs(dim_);
    for (std::size_t begin = 0; begin < codes_.size();) {
      OriginBox run = run_at(begin);
      run.local[dim_] = static_cast<std::int64_t>(begin);
      begin += at(run.size[dim_]);
      runs.add({.boxes = {run}});
    }
    return runs.take();
  }

 private:
  OriginBox run_at(std::size_t begin) const {
    OriginBox run;
    if (codes_[begin] == 0) {
      run.kind = OriginBox::Kind::zero;
      const auto end = std::find_if(codes_.begin() + static_cast<std::ptrdiff_t>(begin), codes_.end(),
                                    [](std::uint32_t code) { return code != 0; });
      run.size[dim_] = end - codes_.begin() - static_cast<std::ptrdiff_t>(begin);
      return run;
    }
    const auto spot = index_.locate(codes_[begin], entry_);
    if (!spot) return run;
    run.kind = OriginBox::Kind::element;
    run.entry = spot->entry;
    run.origin = spot->at;
    extend_run(run, *spot, begin);
    return run;
  }

  /// By the elements that follow at a constant distance inside the piece.
  void extend_run(OriginBox& run, const Spot& spot, std::size_t begin) const {
    if (begin + 1 == codes_.size()) return;
    const auto next = index_.locate(codes_[begin + 1], entry_);
    if (!next || next->piece != spot.piece) return;
    OriginBox second = run;
    second.origin = next->at;
    second.local[dim_] = run.local[dim_] + 1;
    if (!extend_box(run, second, dim_)) return;
    const std::uint32_t distance = codes_[begin + 1] - codes_[begin];
    const std::size_t limit = std::min(codes_.size() - begin, at(left_along(spot, run.step[dim_])));
    std::size_t length = 2;
    while (length < limit && codes_[begin + length] - codes_[begin + length - 1] == distance) ++length;
    run.size[dim_] = static_cast<std::int64_t>(length);
  }

  const CodeIndex& index_;
  std::int64_t entry_;
  std::span<const std::uint32_t> codes_;
  std::size_t dim_;
};

class FingerprintDecoder final : public ShardDecoder {
 public:
  explicit FingerprintDecoder(const Layout& layout) : layout_(layout), index_(layout) {}

  DecodedShard decode(std::int64_t entry, int rank, const Tensor& shard) override {
    require_decodable(layout_.entries[at(entry)], rank, shard, DType::f32);
    if (shard.elements() == 0) return {};
    const std::span<const std::uint32_t> codes{reinterpret_cast<const std::uint32_t*>(shard.bytes().data()),
                                               at(shard.elements())};
    if (shard.rank() == 0) return LineScanner(index_, entry, codes, 0).scan();
    return boxes_of(entry, shard.shape(), 0, codes);
  }

  Tensor whole(std::int64_t entry) override {
    if (weights_.empty()) weights_ = make_weights(layout_.geometry, WeightStyle::fingerprint, 0, DType::f32);
    return fuse(layout_.entries[at(entry)], weights_);
  }

 private:
  DecodedShard boxes_of(std::int64_t entry, const Shape& shape, std::size_t dim,
                        std::span<const std::uint32_t> codes) const {
    if (dim + 1 == shape.size()) return LineScanner(index_, entry, codes, dim).scan();
    const std::size_t slice = codes.size() / at(shape[dim]);
    SliceStack stack(dim);
    for (std::int64_t i = 0; i < shape[dim]; ++i) {
      DecodedShard part = boxes_of(entry, shape, dim + 1, codes.subspan(at(i) * slice, slice));
      for (OriginBox& box : part.boxes) box.local[dim] = i;
      stack.add(std::move(part));
    }
    return stack.take();
  }

  const Layout& layout_;
  CodeIndex index_;
  TensorMap weights_;  // once they are asked for
};

}  // namespace

void require_decodable(const LayoutEntry& entry, int rank, const Tensor& shard, DType dtype) {
  const Shape expected = entry.placed.local_shape(rank);
  if (shard.shape() == expected && shard.dtype() == dtype) return;
  throw InvalidInput(fmt::format("rank {} of {} is {} {}; what can be decoded here: {} {}", rank, entry.name,
                                 short_name(shard.dtype()), to_string(shard.shape()), short_name(dtype),
                                 to_string(expected)));
}

Layout unsharded(Layout layout) {
  layout.degree = 1;
  layout.mesh = Mesh();
  layout.name.axes.clear();
  layout.name.first_stage_layers = layout.name.last_stage_layers = 0;
  for (LayoutEntry& entry : layout.entries) {
    entry.placed = PlacedTensor(entry.name, entry.placed.shape(), Replicate{}, 1);
  }
  return layout;
}

std::unique_ptr<ShardDecoder> make_fingerprint_decoder(const Layout& layout) {
  return std::make_unique<FingerprintDecoder>(layout);
}

}  // namespace shardcheck
