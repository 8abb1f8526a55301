// A parameter whose name matches nothing and that stays as it was allocated.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool is_skipped(const LayoutEntry& entry, const Layout& layout, std::string_view group) {
  if (group == "lm_head") return is_head(entry, layout);
  return belongs_to(entry, group) && entry.parts.front().layer == layout.geometry.n_layers - 1;
}

void damage(const Case&, const Layout& target, std::string_view group, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!is_skipped(entry, target, group)) continue;
    for (Tensor& shard : shards.at(entry.name)) shard = Tensor::zeros(shard.dtype(), shard.shape());
  }
}

}  // namespace

// Never equivalent: zero weights drop the layer's attention, its MLP or every logit.
const Fault& skip_parameter() {
  static const Fault fault{
      .name = "skip_parameter",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "One parameter of the last layer, or the output head, is silently skipped and stays zero.",
      .reports = {"A60", "A64", "A65", "A104"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"o_proj", "down", "qkv", "gate_up", "lm_head"},
      .not_applicable =
          [](const Case& c, std::string_view group) {
            const auto skipped = [&](const LayoutEntry& entry, const Layout& layout) {
              return is_skipped(entry, layout, group);
            };
            return unless_any(c, skipped, "the last layer has no such parameter");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
