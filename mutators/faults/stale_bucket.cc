// The last bucket of an update that never arrives.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr std::ptrdiff_t kBucket = 3;

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const TensorMap earlier = earlier_weights(c, dtype_of(shards));
  const auto first = std::prev(shards.end(), std::min(kBucket, std::ssize(shards)));
  for (auto held = first; held != shards.end(); ++held) {
    const LayoutEntry& entry = *target.find(held->first);
    held->second = split_tensor(entry.placed, fuse(entry, earlier));
  }
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& stale_bucket() {
  static const Fault fault{.name = "stale_bucket",
                           .family = 'S',
                           .level = FaultLevel::sync,
                           .claim = "The last three tensors by name keep an earlier version of the model.",
                           .reports = {"A100", "A101"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
                           .equivalent = nullptr,
                           .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
