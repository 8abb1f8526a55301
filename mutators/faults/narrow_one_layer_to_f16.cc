// One layer's q, k and v through f16 and back.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, const Layout& layout) {
  return belongs_to(entry, "qkv") && entry.parts.front().layer == layout.geometry.n_layers - 1;
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!hits(entry, target)) continue;
    for (Tensor& shard : shards.at(entry.name)) shard = shard.to(DType::f16).to(DType::f32);
  }
}

}  // namespace

// Never equivalent: random f32 weights are no f16 numbers.
const Fault& narrow_one_layer_to_f16() {
  static const Fault fault{
      .name = "narrow_one_layer_to_f16",
      .family = 'S',
      .level = FaultLevel::value,
      .claim = "The q, k and v weights of the last layer went through f16 and back.",
      .reports = {"A105", "A106"},
      .oracles = {Oracle::layout, Oracle::tree},  // the seed's threshold does not see it
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "weights of 16 bits have nothing to lose";
        return unless_any(c, hits, "the last layer has no q, k and v");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
