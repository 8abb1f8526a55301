// The gradient of a replicated parameter reduced twice.
#include "gradients.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class ReducedTwice final : public effective::GradientSteps {
  int reductions() const override { return 2; }
};

}  // namespace

// Never equivalent: sums of random whole numbers are not all 0.
const Fault& replicated_gradient_summed_twice() {
  static const Fault fault{.name = "replicated_gradient_summed_twice",
                           .family = 'K',
                           .level = FaultLevel::gradient,
                           .claim =
                               "The gradient of a parameter that every rank holds is summed over the ranks "
                               "twice, so that it is as many times too large as there are ranks.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::gradient,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::reduced_gradients(c, ReducedTwice());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
