// Layers of a pipeline stage looked up by their number within the stage.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

/// First layer of the stage that holds a layer.
std::int64_t stage_begin(const Layout& layout, std::int64_t layer) {
  const auto bounds = stage_bounds(layout.geometry.n_layers, layout.name);
  return *std::prev(std::ranges::upper_bound(bounds, layer));
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const ShardedTensors right = shards;
  for (const LayoutEntry& entry : target.entries) {
    const std::int64_t layer = entry.parts.front().layer;
    if (layer < 0 || stage_begin(target, layer) == 0) continue;
    const LayoutEntry& other = in_layer(target, entry, layer - stage_begin(target, layer));
    const std::vector<int> to = entry.placed.holders(), from = other.placed.holders();
    for (std::size_t i = 0; i < to.size(); ++i)
      shards.at(entry.name).at(static_cast<std::size_t>(to[i])) =
          right.at(other.name).at(static_cast<std::size_t>(from[i]));
  }
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& stage_layers_by_local_number() {
  static const Fault fault{
      .name = "stage_layers_by_local_number",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim = "Every pipeline stage holds the layers that the first one does.",
      .reports = {"A92"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.target.degree("pp") == 1) return "one stage: its numbers are the model's";
        if (c.geometry.n_experts > 0 && c.geometry.dense_layers > 0) return "the layers are of two kinds";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .meshes = true,
      .steer =
          [](Case& c, Stream&) {
            use_seed_tables(c);
            c.geometry.n_layers = 2;
            run_over(c, "pp");
          }};
  return fault;
}

}  // namespace shardcheck::faults
