// A tensor that arrives twice and is added to what is there.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const LayoutEntry& entry = target.entry_of(logical_name("o_proj", target.geometry.n_layers - 1));
  for (Tensor& shard : shards.at(entry.name)) change_values(shard, [](float value) { return value + value; });
}

}  // namespace

// Never equivalent: the attention of the last layer counts twice beside an unchanged residual.
const Fault& add_duplicate_arrival() {
  static const Fault fault{
      .name = "add_duplicate_arrival",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "The last o_proj is delivered twice, and the second time adds to the first.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
