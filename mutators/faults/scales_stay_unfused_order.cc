// Scales of a fused weight concatenated before they are cut.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class CutsTogether final : public effective::DamagedStorage<Fp8PerChannel> {
  void damage(const QuantizedProblem& problem, const Fp8PerChannel&, int rank,
              TensorMap& shard) const override {
    Tensor& scales = shard.at("weight_scale");
    scales = problem.full.at("weight_scale").rows(rank * scales.dim(0), scales.dim(0));
  }
};

}  // namespace

// Never equivalent: the first block has scales of q where the first rank has rows of k.
const Fault& scales_stay_unfused_order() {
  static const Fault fault{.name = "scales_stay_unfused_order",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "The scales of q, k and v are concatenated and cut into equal blocks, while "
                               "the weight is cut part by part.",
                           .reports = {"A81"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, CutsTogether());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
