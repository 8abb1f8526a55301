// The shared expert's partial sum kept as if it were the whole.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KeptPartials final : public StepsDecorator {
 public:
  KeptPartials(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  int reductions(const StepSite& site, std::string_view role) const override {
    // In a layer before, ranks that disagree would send a token to different experts.
    const bool kept = role == "shared_down" && site.layer == site.geometry.n_layers - 1;
    return kept ? 0 : inner().reductions(site, role);
  }
};

}  // namespace

// Never equivalent: each rank goes on with the contribution of its own columns.
const Fault& shared_expert_not_reduced() {
  static const Fault fault{
      .name = "shared_expert_not_reduced",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The partial sums of the last layer's shared expert are not reduced: each rank adds its own.",
      .reports = {"A51"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_experts == 0 || c.geometry.shared_ffn == 0) return "the model has no shared expert";
        return needs_ranks(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<KeptPartials>,
      .steer = give_shared_expert};
  return fault;
}

}  // namespace shardcheck::faults
