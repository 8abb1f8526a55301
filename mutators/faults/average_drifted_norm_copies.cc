// Copies of a norm that drifted apart on the source's ranks, merged by their mean.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr float kDrift = 0.2F;

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const int copies = c.source.tp_degree();
  for (const LayoutEntry& entry : target.entries) {
    if (!is_norm(entry)) continue;
    // Copy r is the weight times 1 + drift; the first one did not drift.
    std::vector<float> mean(static_cast<std::size_t>(entry.placed.shape()[0]), 1.0F);
    std::vector<float> drift(mean.size());
    for (int copy = 1; copy < copies; ++copy) {
      fill_normal(drift, stream_key(c.seed, "drift/" + entry.name + std::to_string(copy)), 0.0F, kDrift);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += drift[i] / static_cast<float>(copies);
    }
    for (Tensor& shard : shards.at(entry.name)) {
      auto factor = mean.begin();
      change_values(shard, [&factor](float value) { return value * *factor++; });
    }
  }
}

}  // namespace

// Never equivalent: random drifts do not cancel.
const Fault& average_drifted_norm_copies() {
  static const Fault fault{
      .name = "average_drifted_norm_copies",
      .family = 'N',
      .level = FaultLevel::value,
      .claim = "Every rank holds the mean of norm weights that differ between the ranks of the source.",
      .reports = {"A53", "A115"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.source.tp_degree() == 1) return "the source has one copy of each norm";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
