#include <map>
#include <span>
#include <string>

#include "box_copy.h"
#include "shardcheck/reshard/reshard.h"
#include "shards.h"

namespace shardcheck {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Adds a box of a logical tensor of `shape`, given contiguous.
void add_box(TensorDigest& digest, const Shape& shape, std::span<const std::int64_t> origin,
             const Tensor& box) {
  const std::int64_t row = box.shape().empty() ? 1 : box.shape().back();
  const std::size_t row_bytes = row == 0 ? 0 : at(row * size_bits(box.dtype()) / 8);
  for (std::int64_t r = 0; row > 0 && r < box.elements() / row; ++r) {
    std::int64_t first = 0, rest = r;
    std::vector<std::int64_t> index(shape.size(), 0);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (d + 1 == shape.size()) continue;
      index[d] = rest % box.shape()[d];
      rest /= box.shape()[d];
    }
    for (std::size_t d = 0; d < shape.size(); ++d) first = first * shape[d] + origin[d] + index[d];
    digest.add_run(first, box.bytes().data() + at(r) * row_bytes, row);
  }
}

}  // namespace

WeightDigest digest_of(const Layout& layout, const ShardedTensors& shards) {
  require_shards_of(layout, shards);
  for (const LayoutEntry& entry : layout.entries) {
    require_equal_replicas(entry.placed, shards.find(entry.name)->second);
  }
  const Layout logical = logical_layout(layout.geometry);
  std::map<std::int32_t, TensorDigest> digests;
  WeightDigest sum;
  for (const Copy& copy : make_plan(layout, logical).copies) {
    const LayoutEntry& from = layout.entries[at(copy.source_entry)];
    const LayoutEntry& to = logical.entries[at(copy.target_entry)];
    const Tensor& held = shards.find(from.name)->second[at(copy.source_rank)];
    auto digest = digests.find(copy.target_entry);
    if (digest == digests.end()) {
      digest =
          digests.emplace(copy.target_entry, TensorDigest(to.name, held.dtype(), to.placed.shape())).first;
      sum += digest_of_header(to.name, held.dtype(), to.placed.shape());
    }
    const auto dims = at(copy.dims);
    const Shape size(copy.size.begin(), copy.size.begin() + copy.dims), origin(dims, 0);
    Tensor box = allocate_tensor(to.name, held.dtype(), size);
    copy_box(to.name, held.dtype(), size, held.bytes().data(),
             {held.shape(), std::span(copy.source_origin).first(held.shape().size())},
             std::span(copy.source_dim).first(dims), box.mutable_bytes().data(), {size, origin});
    add_box(digest->second, to.placed.shape(), std::span(copy.target_origin).first(dims),
            shifted(to.name, box, copy.shift));
  }
  for (const auto& [entry, digest] : digests) sum += digest.sum();
  return sum;
}

WeightDigest digest_of(const TensorMap& logical) {
  WeightDigest sum;
  for (const auto& [name, tensor] : logical) {
    TensorDigest digest(name, tensor.dtype(), tensor.shape());
    digest.add_run(0, tensor.bytes().data(), tensor.elements());
    sum += digest_of_header(name, tensor.dtype(), tensor.shape());
    sum += digest.sum();
  }
  return sum;
}

}  // namespace shardcheck
