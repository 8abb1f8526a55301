#include <map>
#include <span>
#include <string>

#include "run_copy.h"
#include "shardcheck/reshard/reshard.h"
#include "shards.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Adds a box of a logical tensor of `shape`, given contiguous.
void add_box(TensorDigest& digest, const Shape& shape, std::span<const std::int64_t> origin,
             const Tensor& box) {
  const std::int64_t row = box.shape().empty() ? 1 : box.shape().back();
  const std::size_t row_bytes = at(row * size_bits(box.dtype()) / 8);
  for (std::int64_t r = 0; row > 0 && r < box.elements() / row; ++r) {
    std::int64_t first = shape.empty() ? 0 : origin.back();
    std::int64_t rest = r, stride = shape.empty() ? 1 : shape.back();
    for (std::size_t d = shape.size(); d-- > 1; stride *= shape[d - 1]) {
      first += (origin[d - 1] + rest % box.shape()[d - 1]) * stride;
      rest /= box.shape()[d - 1];
    }
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
    add_box(digest->second, to.placed.shape(), std::span(copy.target_origin).first(at(copy.dims)),
            read_copy(to.name, held.dtype(), copy, held.bytes().data(), held.shape()));
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
