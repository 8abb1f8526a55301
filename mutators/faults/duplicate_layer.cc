// A layer loaded twice, in its own place and in the next one's.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const std::int64_t last = target.geometry.n_layers - 1;
  for (const LayoutEntry& entry : target.entries) {
    if (entry.parts.front().layer != last) continue;
    shards.at(entry.name) = shards.at(in_layer(target, entry, last - 1).name);
  }
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& duplicate_layer() {
  static const Fault fault{
      .name = "duplicate_layer",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim = "The last layer holds the weights of the one before it, and its own are nowhere.",
      .reports = {"A68", "A92"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        const std::int64_t last = c.geometry.n_layers - 1;
        if (last == 0 || c.geometry.has_experts(last) != c.geometry.has_experts(last - 1))
          return "the last layer has none of its kind before it";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
