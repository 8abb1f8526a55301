// The gradient of a replicated parameter averaged.
#include "gradients.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Averaged final : public effective::GradientSteps {
  float divisor(std::string_view parameter, int degree) const override {
    return parameter.ends_with("norm") ? static_cast<float>(degree) : 1.0F;
  }
};

}  // namespace

// Never equivalent: sums of random whole numbers are not all 0.
const Fault& replicated_gradient_averaged() {
  static const Fault fault{.name = "replicated_gradient_averaged",
                           .family = 'K',
                           .level = FaultLevel::gradient,
                           .claim =
                               "The gradient of a norm is divided by the number of ranks that add to it, as "
                               "if they were replicas of the data.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::gradient,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::reduced_gradients(c, Averaged());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
