// One random state for all ranks.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class FirstRanksState final : public effective::StateMove {
  std::vector<Tensor> moved(const effective::MovedTensor& tensor, const std::vector<Tensor>& held,
                            const effective::Regrouping& regrouping) const override {
    std::vector<Tensor> state = StateMove::moved(tensor, held, regrouping);
    if (tensor.name == "random_state") state.assign(state.size(), Tensor(state.front()));
    return state;
  }
};

}  // namespace

// Never equivalent: no two ranks have one state.
const Fault& random_state_of_first_rank_everywhere() {
  static const Fault fault{.name = "random_state_of_first_rank_everywhere",
                           .family = 'K',
                           .level = FaultLevel::plan,
                           .claim =
                               "Every rank restores the random state of the first, so that ranks drop the "
                               "same elements out of different shards.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::optimizer,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::moved_state(c, FirstRanksState());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
