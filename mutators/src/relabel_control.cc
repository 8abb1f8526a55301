#include "relabel_control.h"

#include <algorithm>
#include <numeric>

namespace shardcheck::faults {
namespace {

bool moves_a_part(const Relabelling& relabelling, const LayoutEntry& entry) {
  return std::ranges::any_of(entry.parts, [&](const LogicalTensor& part) {
    return part.layer >= 0 && moves(relabelling[static_cast<std::size_t>(part.layer)], part.role);
  });
}

}  // namespace

void deliver_relabelled(const Layout& target, const Relabelling& relabelling, ShardedTensors& shards) {
  const TensorMap renamed = relabelled(target.geometry, gather(shards, target), relabelling);
  for (const LayoutEntry& entry : target.entries) {
    if (moves_a_part(relabelling, entry))
      shards.at(entry.name) = split_tensor(entry.placed, fuse(entry, renamed));
  }
}

Order rotated_by_one(std::int64_t count) {
  Order order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::rotate(order.begin(), order.begin() + 1, order.end());
  return order;
}

}  // namespace shardcheck::faults
