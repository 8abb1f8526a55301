// A moment of the optimiser left where it was.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Stays final : public effective::StateMove {
 public:
  explicit Stays(std::string_view moment) : moment_(moment) {}
  std::vector<Tensor> moved(const effective::MovedTensor& tensor, const std::vector<Tensor>& held,
                            const effective::Regrouping& regrouping) const override {
    return tensor.name.ends_with(moment_) ? held : StateMove::moved(tensor, held, regrouping);
  }

 private:
  std::string_view moment_;
};

}  // namespace

// Never equivalent: every process becomes another rank.
const Fault& optimizer_moment_not_moved() {
  static const Fault fault{.name = "optimizer_moment_not_moved",
                           .family = 'K',
                           .level = FaultLevel::plan,
                           .claim =
                               "Parameters move to other ranks and rows, and a moment of the optimiser stays "
                               "as each process held it.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {"exp_avg", "exp_avg_sq"},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::optimizer,
                           .effective = [](const Case& c, std::string_view argument) {
                             return effective::moved_state(c, Stays(argument));
                           }};
  return fault;
}

}  // namespace shardcheck::faults
