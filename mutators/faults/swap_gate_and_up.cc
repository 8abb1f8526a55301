// Gate delivered as up and up as gate.
#include <utility>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void swap_halves(std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) swap_rows(shard, 0, shard.dim(0) / 2, shard.dim(0) / 2);
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (stacks(entry, {"gate", "up"})) swap_halves(shards.at(entry.name));
    if (!stacks(entry, {"gate"})) continue;
    const LayoutEntry* up = unfused(target, logical_name("up", entry.parts.front().layer));
    if (up != nullptr) std::swap(shards.at(entry.name), shards.at(up->name));
  }
}

}  // namespace

// Never equivalent: silu(g) u and silu(u) g differ unless g = u.
const Fault& swap_gate_and_up() {
  static const Fault fault{.name = "swap_gate_and_up",
                           .family = 'F',
                           .level = FaultLevel::plan,
                           .claim = "Gate is delivered where up is read and up where gate is read.",
                           .reports = {"A10", "A19"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 const auto is_gate = [](const LayoutEntry& entry, const Layout&) {
                                   return stacks(entry, {"gate", "up"}) || stacks(entry, {"gate"});
                                 };
                                 return unless_any(c, is_gate, "no dense layer has a gate");
                               },
                           .equivalent = nullptr,
                           .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
