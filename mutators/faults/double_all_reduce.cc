// A sum that is reduced once more.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class ReducedTwice final : public StepsDecorator {
 public:
  ReducedTwice(const ForwardSteps& inner, std::string_view role) : StepsDecorator(inner), role_(role) {}
  int reductions(const StepSite& site, std::string_view role) const override {
    return inner().reductions(site, role) * (role == role_ ? 2 : 1);
  }

 private:
  std::string role_;
};

}  // namespace

// Never equivalent: the layer's contribution is t times too large beside an unchanged residual.
const Fault& double_all_reduce() {
  static const Fault fault{
      .name = "double_all_reduce",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The sum of a row-parallel layer is reduced a second time and grows by the number of ranks.",
      .reports = {"A49", "A50"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {"o_proj", "down"},
      .not_applicable = [](const Case& c, std::string_view role) { return needs_sum_of(c, role); },
      .equivalent = nullptr,
      .inject = with_steps<ReducedTwice>};
  return fault;
}

}  // namespace shardcheck::faults
