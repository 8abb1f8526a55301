// One scale for all parts of a fused weight.
#include <algorithm>

#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class OneScale final : public effective::DamagedStorage<Fp8PerTensor> {
 public:
  explicit OneScale(bool largest) : largest_(largest) {}

 private:
  void damage(const QuantizedProblem&, const Fp8PerTensor&, int, TensorMap& shard) const override {
    const auto scales = shard.at("weight_scale").mutable_f32();
    const float one = largest_ ? std::ranges::max(scales) : scales.front();
    std::ranges::fill(scales, one);
  }

  bool largest_;
};

}  // namespace

// Never equivalent: the scales are random numbers of 26 bits.
const Fault& collapse_fused_scales() {
  static const Fault fault{.name = "collapse_fused_scales",
                           .family = 'Q',
                           .level = FaultLevel::value,
                           .claim =
                               "The parts of a fused weight have a scale each, and the engine uses one of "
                               "them, the largest or the first, for all without requantising.",
                           .reports = {"A85"},
                           .oracles = {Oracle::layout},
                           .arguments = {"max", "first"},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view argument) {
                             return effective::dequantized_weights(c, OneScale(argument == "max"));
                           }};
  return fault;
}

}  // namespace shardcheck::faults
