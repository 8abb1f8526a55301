// Control: a sharded model whose attention adds nothing. It deviates as much as any layout bug, which is why
// a kill counts only where the same case passes without a fault.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class SilentAttention final : public StepsDecorator {
 public:
  SilentAttention(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner().after_partial(site, role, partial);
    if (role == "o_proj") std::ranges::fill(partial, 0.0F);
  }
};

}  // namespace

const Fault& zero_o_proj_output() {
  static const Fault fault{
      .name = "zero_o_proj_output",
      .family = 'Z',
      .level = FaultLevel::forward,
      .claim = "The output projection of every layer yields zero: the invariant laws fail.",
      .reports = {"seed control"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_steps<SilentAttention>};
  return fault;
}

}  // namespace shardcheck::faults
