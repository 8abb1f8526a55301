// Every rank reads the scales of the first groups.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class FirstGroups final : public effective::DamagedStorage<Awq> {
  void damage(const QuantizedProblem& problem, const Awq&, int, TensorMap& shard) const override {
    if (problem.style != ParallelStyle::row) return;
    Tensor& scales = shard.at("scales");
    scales = problem.full.at("scales").rows(0, scales.dim(0));
  }
};

}  // namespace

// Never equivalent: the second rank has other groups than the first, with random scales.
const Fault& scales_not_sharded() {
  static const Fault fault{.name = "scales_not_sharded",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "The group scales of a row-parallel weight are not sharded, so that every "
                               "rank reads those of the first groups for its inputs.",
                           .reports = {"A32", "A75"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, FirstGroups());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
