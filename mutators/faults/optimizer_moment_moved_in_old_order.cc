// A moment of the optimiser cut in the order it had before.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KeepsOrder final : public effective::StateMove {
 public:
  explicit KeepsOrder(std::string_view moment) : moment_(moment) {}
  std::vector<Tensor> moved(const effective::MovedTensor& tensor, const std::vector<Tensor>& held,
                            const effective::Regrouping& regrouping) const override {
    effective::MovedTensor same = tensor;
    if (tensor.name.ends_with(moment_)) same.after = tensor.before;
    return StateMove::moved(same, held, regrouping);
  }

 private:
  std::string_view moment_;
};

}  // namespace

// Never equivalent: a rank has two rows of gate, which lie one after the other in one order alone.
const Fault& optimizer_moment_moved_in_old_order() {
  static const Fault fault{
      .name = "optimizer_moment_moved_in_old_order",
      .family = 'K',
      .level = FaultLevel::plan,
      .claim =
          "A moment of the optimiser goes to the right rank in the order that its rows had before, where "
          "gate and up alternate, while the parameter's rows are stacked.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {"exp_avg", "exp_avg_sq"},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::optimizer,
      .effective = [](const Case& c, std::string_view argument) {
        return effective::moved_state(c, KeepsOrder(argument));
      }};
  return fault;
}

}  // namespace shardcheck::faults
