// One shard that is wrong everywhere by less than a coarse threshold sees.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr float kNoise = 1e-3F;

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const LayoutEntry& entry = target.entry_of(logical_name("o_proj", target.geometry.n_layers - 1));
  Tensor& last = shards.at(entry.name).back();
  std::vector<float> noise(static_cast<std::size_t>(last.elements()));
  fill_normal(noise, stream_key(c.seed, "noise"), 1.0F, kNoise);
  auto factor = noise.begin();
  change_values(last, [&factor](float value) { return value * *factor++; });
}

}  // namespace

// Never equivalent: random factors are not one.
const Fault& relative_noise_on_one_shard() {
  static const Fault fault{
      .name = "relative_noise_on_one_shard",
      .family = 'S',
      .level = FaultLevel::value,
      .claim =
          "Every element of the last rank's shard of the last o_proj is off by about a part in a thousand.",
      .reports = {"blind spot: relative noise of 1e-3 on one shard"},
      .oracles = {Oracle::tree},  // the seed's threshold does not see it
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "the noise may round away in 16 bits";
        const auto is_held = [](const LayoutEntry& entry, const Layout&) {
          return stacks(entry, {"o_proj"}) &&
                 element_count(entry.placed.local_shape(entry.placed.degree() - 1)) > 0;
        };
        return unless_any(c, is_held, "the last rank holds no part of o_proj");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
