// The last layer is never run.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class WithoutLastLayer final : public StepsDecorator {
 public:
  WithoutLastLayer(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner().after_partial(site, role, partial);
    if (site.layer == site.geometry.n_layers - 1) std::ranges::fill(partial, 0.0F);
  }
};

}  // namespace

// Never equivalent: the last layer adds to the residual.
const Fault& drop_last_layer() {
  static const Fault fault{
      .name = "drop_last_layer",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim = "The last layer adds nothing to the residual, as if it had not been built.",
      .reports = {"A68", "A93"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_steps<WithoutLastLayer>};
  return fault;
}

}  // namespace shardcheck::faults
