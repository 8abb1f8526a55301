// Two parameters over one buffer: the last write wins.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const LayoutEntry& first = target.entry_of(logical_name("o_proj", 0));
  const LayoutEntry& last = target.entry_of(logical_name("o_proj", target.geometry.n_layers - 1));
  shards.at(first.name) = shards.at(last.name);
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& alias_two_buffers() {
  static const Fault fault{
      .name = "alias_two_buffers",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "The o_proj of the first layer is that of the last, whose buffer it shares.",
      .reports = {"A68", "A63"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_layers == 1) return "one layer has one o_proj";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
