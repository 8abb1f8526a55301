// Scale rows of a rank counted as its inputs over a group as wide as all inputs.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class NoRows final : public effective::DamagedStorage<Awq> {
  void damage(const QuantizedProblem& problem, const Awq&, int, TensorMap& shard) const override {
    if (problem.style != ParallelStyle::row) return;
    Tensor& scales = shard.at("scales");
    const std::int64_t group = problem.matrix.in, local = group / problem.degree;  // local < group
    clear_rows(scales, local / group, scales.dim(0) - local / group);
  }
};

}  // namespace

// Never equivalent: scales are not zero.
const Fault& scales_empty_of_whole_group() {
  static const Fault fault{.name = "scales_empty_of_whole_group",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "A group is taken to be as wide as the whole input of a row-parallel weight, "
                               "so that a rank counts no scales among its inputs and they stay zero.",
                           .reports = {"A76"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, NoRows());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
