// Group ids of a rank counted from its first group.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class CountsLocally final : public effective::DamagedStorage<Gptq> {
  void damage(const QuantizedProblem& problem, const Gptq& format, int, TensorMap& shard) const override {
    if (!format.act_order) return;
    const std::int64_t groups = problem.full.at("scales").dim(0) / problem.degree;
    for (std::int32_t& id : shard.at("g_idx").mutable_as<std::int32_t>())
      id %= static_cast<std::int32_t>(groups);
  }
};

}  // namespace

// Never equivalent: some rank has an input of the last group, whose random scales are read from another.
const Fault& act_order_made_local() {
  static const Fault fault{
      .name = "act_order_made_local",
      .family = 'Q',
      .level = FaultLevel::plan,
      .claim =
          "With act_order, the group ids of a row-parallel weight are taken for those of as many groups as a "
          "rank would have without, although its inputs belong to groups all over.",
      .reports = {"A86"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::quantized,
      .effective = [](const Case& c, std::string_view) {
        return effective::dequantized_weights(c, CountsLocally());
      }};
  return fault;
}

}  // namespace shardcheck::faults
