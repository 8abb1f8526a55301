// Keys delivered as values and values as keys.
#include <utility>

#include "taken.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (stacks(entry, {"q", "k", "v"})) {
      const QkvRows rows = qkv_rows(target.geometry, entry);
      for (Tensor& shard : shards.at(entry.name))
        swap_rows(shard, rows.local_q, rows.local_q + rows.local_kv, rows.local_kv);
    }
    if (!stacks(entry, {"k"})) continue;
    const LayoutEntry* v = unfused(target, logical_name("v", entry.parts.front().layer));
    if (v != nullptr) std::swap(shards.at(entry.name), shards.at(v->name));
  }
}

}  // namespace

// Never equivalent: the attention output is a mean of values, and keys are none.
const Fault& swap_k_and_v() {
  static const Fault fault{
      .name = "swap_k_and_v",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "Keys are delivered where values are read and values where keys are read.",
      .reports = {"A6", "A16"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_plain_heads(c); },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
