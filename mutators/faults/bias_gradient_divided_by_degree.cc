// The gradient of a row-parallel bias divided by the ranks.
#include "gradients.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Divided final : public effective::GradientSteps {
  float divisor(std::string_view parameter, int degree) const override {
    return parameter.ends_with("o_bias") ? static_cast<float>(degree) : 1.0F;
  }
};

}  // namespace

// Never equivalent: sums of random whole numbers are not all 0.
const Fault& bias_gradient_divided_by_degree() {
  static const Fault fault{.name = "bias_gradient_divided_by_degree",
                           .family = 'K',
                           .level = FaultLevel::gradient,
                           .claim =
                               "A row-parallel bias is divided by the number of ranks in the forward pass, "
                               "which every rank then adds, and its gradient is divided along with it.",
                           .reports = {"A116"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::gradient,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::reduced_gradients(c, Divided());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
