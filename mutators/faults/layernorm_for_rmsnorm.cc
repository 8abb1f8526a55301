// A norm that subtracts the mean where the model does not.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class MeanSubtracted final : public StepsDecorator {
 public:
  MeanSubtracted(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  void before_norm(const StepSite& site, float* x, std::int64_t rows, std::int64_t width) const override {
    inner().before_norm(site, x, rows, width);
    for (float* row = x; row != x + rows * width; row += width) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < width; ++i) sum += row[i];
      for (std::int64_t i = 0; i < width; ++i) row[i] -= sum / static_cast<float>(width);
    }
  }
};

}  // namespace

// Never equivalent: the mean of a random row is not zero.
const Fault& layernorm_for_rmsnorm() {
  static const Fault fault{
      .name = "layernorm_for_rmsnorm",
      .family = 'N',
      .level = FaultLevel::forward,
      .claim = "Every norm subtracts the mean of its row first, on the sharded side alone.",
      .reports = {"blind spot: RMSNorm turned into LayerNorm"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.norm == Norm::layer) return "the model's norms subtract the mean";
        if (c.geometry.d_model == 1) return "the mean of one value leaves nothing to compare";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<MeanSubtracted>};
  return fault;
}

}  // namespace shardcheck::faults
