// The gradient of a replicated parameter left as each rank's own.
#include "gradients.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Unreduced final : public effective::GradientSteps {
 public:
  int reductions() const override { return 0; }
};

}  // namespace

// Never equivalent: some of at least nine whole numbers drawn on other ranks are not zero.
const Fault& replicated_gradient_not_summed() {
  static const Fault fault{
      .name = "replicated_gradient_not_summed",
      .family = 'K',
      .level = FaultLevel::gradient,
      .claim =
          "The gradient of a parameter that every rank holds is not summed over the ranks, so that its "
          "copies drift apart while every forward pass is right.",
      .reports = {"A114", "A115"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::gradient,
      .effective = [](const Case& c, std::string_view) {
        return effective::reduced_gradients(c, Unreduced());
      }};
  return fault;
}

}  // namespace shardcheck::faults
