// The random state left with the process.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KeepsRandomState final : public effective::StateMove {
  std::vector<Tensor> moved(const effective::MovedTensor& tensor, const std::vector<Tensor>& held,
                            const effective::Regrouping& regrouping) const override {
    return tensor.name == "random_state" ? held : StateMove::moved(tensor, held, regrouping);
  }
};

}  // namespace

// Never equivalent: every process becomes another rank, and no two ranks have one state.
const Fault& random_state_not_moved() {
  static const Fault fault{
      .name = "random_state_not_moved",
      .family = 'K',
      .level = FaultLevel::plan,
      .claim = "A process that becomes another rank keeps the random state of the rank that it was.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::optimizer,
      .effective = [](const Case& c, std::string_view) {
        return effective::moved_state(c, KeepsRandomState());
      }};
  return fault;
}

}  // namespace shardcheck::faults
