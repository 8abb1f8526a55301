// Layers numbered from another layer on.
#include <map>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

/// File tensor of the next layer that holds the same roles.
const LayoutEntry& next_layer(const Layout& layout, const LayoutEntry& entry) {
  const LogicalTensor& part = entry.parts.front();
  const std::int64_t next = (part.layer + 1) % layout.geometry.n_layers;
  return layout.entry_of(logical_name(part.role, next));
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const ShardedTensors right = shards;
  for (const LayoutEntry& entry : target.entries) {
    if (entry.parts.front().layer >= 0) shards.at(entry.name) = right.at(next_layer(target, entry).name);
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
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case& c, std::string_view argument) {
            return damage_delivery(std::move(inner), c, argument, damage);
          }};
  return fault;
}

}  // namespace shardcheck::faults
