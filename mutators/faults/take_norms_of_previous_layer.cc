// Norm weights counted from another layer on than the matrices beside them.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const ShardedTensors right = shards;
  for (const LayoutEntry& entry : target.entries) {
    if (!is_norm(entry) || entry.parts.front().layer < 1) continue;
    shards.at(entry.name) = right.at(in_layer(target, entry, entry.parts.front().layer - 1).name);
  }
}

}  // namespace

// Never equivalent: the norms of two layers are drawn independently.
const Fault& take_norms_of_previous_layer() {
  static const Fault fault{
      .name = "take_norms_of_previous_layer",
      .family = 'N',
      .level = FaultLevel::plan,
      .claim = "Every layer but the first holds the norm weights of the layer before it.",
      .reports = {"A67", "A92"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_layers == 1) return "one layer: there is none before it";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
