// One tensor, half of which an update reached.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, const Layout& layout) {
  return stacks(entry, {"o_proj"}) && entry.parts.front().layer == layout.geometry.n_layers - 1;
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const TensorMap earlier = earlier_weights(c, dtype_of(shards));
  for (const LayoutEntry& entry : target.entries) {
    if (!hits(entry, target)) continue;
    auto& held = shards.at(entry.name);
    const std::vector<Tensor> old = split_tensor(entry.placed, fuse(entry, earlier));
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      const std::int64_t updated = held[rank].dim(0) / 2;
      const Tensor stale = old[rank].rows(updated, held[rank].dim(0) - updated);
      std::ranges::copy(stale.bytes(), held[rank].mutable_bytes().end() - std::ssize(stale.bytes()));
    }
  }
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& partial_update() {
  static const Fault fault{
      .name = "partial_update",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "The second half of the rows of the last o_proj keep an earlier version of the model.",
      .reports = {"A16", "A110"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view) {
            return unless_any(c, hits, "the target holds o_proj in another order");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
