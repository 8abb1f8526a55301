// The shared expert's sum reduced once more.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class ReducedTwice final : public StepsDecorator {
 public:
  ReducedTwice(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  int reductions(const StepSite& site, std::string_view role) const override {
    return inner().reductions(site, role) * (role == "shared_down" ? 2 : 1);
  }
};

}  // namespace

// Never equivalent: it grows t times beside unchanged routed experts.
const Fault& shared_expert_reduced_twice() {
  static const Fault fault{
      .name = "shared_expert_reduced_twice",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The output of the shared expert is reduced a second time and grows by the number of ranks.",
      .reports = {"A49", "A50"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_experts == 0 || c.geometry.shared_ffn == 0) return "the model has no shared expert";
        return needs_ranks(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<ReducedTwice>,
      .steer = give_shared_expert};
  return fault;
}

}  // namespace shardcheck::faults
