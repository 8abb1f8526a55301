// A partial sum kept as if it were the whole.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KeptPartials final : public StepsDecorator {
 public:
  KeptPartials(const ForwardSteps& inner, std::string_view role) : StepsDecorator(inner), role_(role) {}
  int reductions(const StepSite& site, std::string_view role) const override {
    return role == role_ ? 0 : inner().reductions(site, role);
  }

 private:
  std::string role_;
};

}  // namespace

// Never equivalent: each rank goes on with the contribution of its own columns.
const Fault& missing_all_reduce() {
  static const Fault fault{
      .name = "missing_all_reduce",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The partial sums of a row-parallel layer are not reduced: each rank goes on with its own.",
      .reports = {"A51"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {"o_proj", "down"},
      .not_applicable = [](const Case& c, std::string_view role) { return needs_sum_of(c, role); },
      .equivalent = nullptr,
      .inject = with_steps<KeptPartials>};
  return fault;
}

}  // namespace shardcheck::faults
