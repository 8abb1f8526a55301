#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "box_builder.h"
#include "box_copy.h"
#include "decoded_shape.h"
#include "line_index.h"
#include "line_resolver.h"
#include "shardcheck/reshard/decode.h"
#include "shardcheck/reshard/reshard.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Lines along one dimension of a tensor: how they are cut out of it. By dimension; `begin` and `size` of the
/// line dimension are 0 and its extent.
struct LineCut {
  std::size_t dim = 0;
  Shape begin, size;
};

std::vector<LineHash> hash_lines(const std::string& name, const Tensor& tensor, const LineCut& cut) {
  std::vector<std::int8_t> order{static_cast<std::int8_t>(cut.dim)};
  for (std::size_t d = 0; d < cut.size.size(); ++d) {
    if (d != cut.dim) order.push_back(static_cast<std::int8_t>(d));
  }
  Shape shape;
  for (const std::int8_t d : order) shape.push_back(cut.size[at(d)]);
  Tensor lines = tensor;
  if (cut.dim != 0 || shape != tensor.shape()) {
    lines = allocate_tensor(name, tensor.dtype(), shape);
    const Shape origin(shape.size(), 0);
    copy_box(name, tensor.dtype(), shape, tensor.bytes().data(), {tensor.shape(), cut.begin}, order,
             lines.mutable_bytes().data(), {shape, origin});
  }
  std::vector<LineHash> hashes(at(shape[0]));
  const std::size_t size = hashes.empty() ? 0 : lines.bytes().size() / hashes.size();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto line = lines.bytes().subspan(i * size, size);
    hashes[i].hash = XXH3_64bits(line.data(), line.size());
    hashes[i].zero = std::ranges::all_of(line, [](std::byte b) { return b == std::byte{0}; });
  }
  return hashes;
}

std::vector<std::string> names_of(const LayoutEntry& entry) {
  std::vector<std::string> names;
  for (const LogicalTensor& part : entry.parts) names.push_back(part.name);
  return names;
}

class LineMatcher final : public ShardDecoder {
 public:
  LineMatcher(const Layout& layout, const TensorMap& source) : layout_(layout), source_(source) {
    for (const LogicalTensor& tensor : logical_tensors(layout.geometry)) {
      if (!source.contains(tensor.name)) throw InvalidInput("the source lacks the tensor " + tensor.name);
    }
  }

  DecodedShard decode(std::int64_t entry, int rank, const Tensor& shard) override {
    const LayoutEntry& own = layout_.entries[at(entry)];
    require_decodable(own, rank, shard, source_.at(own.parts.front().name).dtype());
    if (shard.elements() == 0) return {};
    const auto cut = cut_of(own, rank);
    if (!cut) return {.boxes = {box_of(shard.shape(), OriginBox::Kind::unknown)}};
    LineCut local = *cut;
    local.begin.assign(local.begin.size(), 0);
    local.size[cut->dim] = shard.shape()[cut->dim];
    const std::vector<LineHash> lines = hash_lines(own.name, shard, local);
    LineResolver resolver(index_of(own, *cut), lines, expected_lines(entry, rank, cut->dim, lines.size()));
    const auto origins = resolver.resolve();
    DecodedShard decoded = boxes_of(entry, shard.shape(), *cut, lines, origins);
    decoded.ambiguous_lines = resolver.ambiguous();
    return decoded;
  }

  Tensor whole(std::int64_t entry) override { return full(entry); }

 private:
  /// Lines along the first dimension that ranks cut; nullopt where another one is cut into several ranges.
  static std::optional<LineCut> cut_of(const LayoutEntry& entry, int rank) {
    const Shape& shape = entry.placed.shape();
    const std::vector<Selection>& selections = entry.placed.selections(rank);
    LineCut cut{selections.empty() ? 0 : at(selections.front().dim), Shape(shape.size(), 0), shape};
    if (shape.empty()) return std::nullopt;
    for (std::size_t s = 1; s < selections.size(); ++s) {
      const Selection& other = selections[s];
      if (other.runs.size() != 1 || other.runs.front().global == kPadding) return std::nullopt;
      cut.begin[at(other.dim)] = other.runs.front().global;
      cut.size[at(other.dim)] = other.runs.front().length;
    }
    return cut;
  }

  std::vector<Line> expected_lines(std::int64_t entry, int rank, std::size_t dim, std::size_t count) const {
    std::vector<Line> lines;
    for (const Selection& held : layout_.entries[at(entry)].placed.selections(rank)) {
      if (at(held.dim) != dim) continue;
      for (const Run& run : held.runs) {
        for (std::int64_t i = 0; i < run.length; ++i)
          lines.push_back({entry, run.global == kPadding ? kPadding : run.global + i});
      }
    }
    for (std::int64_t i = std::ssize(lines); i < static_cast<std::int64_t>(count); ++i)
      lines.push_back({entry, i});
    return lines;
  }

  const Tensor& full(std::int64_t entry) {
    const auto found = full_.find(entry);
    return found != full_.end()
               ? found->second
               : full_.emplace(entry, fuse(layout_.entries[at(entry)], source_)).first->second;
  }

  /// Of every tensor whose lines have the shape of those of `own`; tied copies are the tensor they copy.
  const LineIndex& index_of(const LayoutEntry& own, const LineCut& cut) {
    Shape key{static_cast<std::int64_t>(cut.dim)};
    for (std::size_t d = 0; d < cut.size.size(); ++d) {
      if (d == cut.dim) continue;
      key.insert(key.end(), {own.placed.shape()[d], cut.begin[d], cut.size[d]});
    }
    const auto [found, is_new] = indices_.try_emplace(key);
    for (std::size_t e = 0; is_new && e < layout_.entries.size(); ++e) {
      const LayoutEntry& other = layout_.entries[e];
      if (other.tied || !has_like_lines(other.placed.shape(), own.placed.shape(), cut.dim)) continue;
      LineCut same = cut;
      same.size[cut.dim] = other.placed.shape()[cut.dim];
      const auto entry = static_cast<std::int64_t>(e);
      if (full(entry).dtype() == source_.at(own.parts.front().name).dtype())
        found->second.add(entry, hash_lines(other.name, full(entry), same));
    }
    if (is_new) found->second.sort();
    return found->second;
  }

  static bool has_like_lines(Shape a, Shape b, std::size_t dim) {
    if (a.size() != b.size()) return false;
    a[dim] = b[dim] = 0;
    return a == b;
  }

  DecodedShard boxes_of(std::int64_t own, const Shape& shape, const LineCut& cut,
                        const std::vector<LineHash>& lines,
                        const std::vector<std::optional<Line>>& origins) const {
    SliceStack stack(cut.dim);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      OriginBox box = box_of(shape, lines[i].zero ? OriginBox::Kind::zero : OriginBox::Kind::unknown);
      box.size[cut.dim] = 1;
      box.local[cut.dim] = static_cast<std::int64_t>(i);
      if (origins[i]) place(box, own, cut, *origins[i]);
      stack.add({.boxes = {box}});
    }
    return stack.take();
  }

  void place(OriginBox& box, std::int64_t own, const LineCut& cut, const Line& line) const {
    const LayoutEntry& entry = layout_.entries[at(own)];
    const bool is_own_copy = entry.tied && names_of(entry) == names_of(layout_.entries[at(line.entry)]);
    box.kind = OriginBox::Kind::element;
    box.entry = is_own_copy ? own : line.entry;
    std::ranges::copy(cut.begin, box.origin.begin());
    box.origin[cut.dim] = line.index;
    for (std::size_t d = 0; d < cut.size.size(); ++d) {
      if (d != cut.dim && box.size[d] > 1) box.step[d] = static_cast<std::int8_t>(d + 1);
    }
  }

  const Layout& layout_;
  const TensorMap& source_;
  std::map<std::int64_t, Tensor> full_;  // file tensors before ranks cut them
  std::map<Shape, LineIndex> indices_;
};

}  // namespace

std::unique_ptr<ShardDecoder> make_line_matcher(const Layout& layout, const TensorMap& source) {
  return std::make_unique<LineMatcher>(layout, source);
}

}  // namespace shardcheck
