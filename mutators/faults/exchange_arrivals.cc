// Two equally shaped tensors that arrive in another order than they are expected.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const LayoutEntry& first = target.entry_of(logical_name("o_proj", 0));
  const LayoutEntry& last = target.entry_of(logical_name("o_proj", target.geometry.n_layers - 1));
  std::swap(shards.at(first.name), shards.at(last.name));
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& exchange_arrivals() {
  static const Fault fault{
      .name = "exchange_arrivals",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "The o_proj of the first and of the last layer have changed places.",
      .reports = {"A100"},
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
