// Layers numbered from another layer on.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const ShardedTensors right = shards;
  for (const LayoutEntry& entry : target.entries) {
    const std::int64_t layer = entry.parts.front().layer;
    if (layer < 0) continue;
    const std::int64_t next = (layer + 1) % target.geometry.n_layers;
    shards.at(entry.name) = right.at(in_layer(target, entry, next).name);
  }
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& shift_layer_offset() {
  static const Fault fault{
      .name = "shift_layer_offset",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim = "Every layer holds the weights of the next one, and the last layer those of the first.",
      .reports = {"A67", "A68", "A92"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_layers == 1) return "one layer: the next one is itself";
        if (has_two_kinds_of_layers(c.geometry))
          return "layers of two kinds cannot take each other's weights";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
