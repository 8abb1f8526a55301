// A reduction that part of the group takes no part in.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class HalfTheGroup final : public StepsDecorator {
 public:
  HalfTheGroup(const ForwardSteps& inner, std::string_view role) : StepsDecorator(inner), role_(role) {}
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner().after_partial(site, role, partial);
    if (role == role_ && site.rank >= (site.degree + 1) / 2) std::ranges::fill(partial, 0.0F);
  }

 private:
  std::string role_;
};

}  // namespace

// Never equivalent: the columns of the last rank reach no sum.
const Fault& all_reduce_over_half_the_group() {
  static const Fault fault{
      .name = "all_reduce_over_half_the_group",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The partial sums of a row-parallel layer are reduced over the first half of the ranks alone.",
      .reports = {"A51", "A70"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {"o_proj", "down"},
      .not_applicable = [](const Case& c, std::string_view role) { return needs_sum_of(c, role); },
      .equivalent = nullptr,
      .inject = with_steps<HalfTheGroup>};
  return fault;
}

}  // namespace shardcheck::faults
