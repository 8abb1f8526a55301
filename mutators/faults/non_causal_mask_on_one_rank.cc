// The last rank lets every position see every other.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class UnmaskedRank final : public StepsDecorator {
 public:
  UnmaskedRank(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool causal(const StepSite& site) const override {
    return site.rank != site.degree - 1 && inner().causal(site);
  }
};

}  // namespace

const Fault& non_causal_mask_on_one_rank() {
  static const Fault fault{.name = "non_causal_mask_on_one_rank",
                           .family = 'P',
                           .level = FaultLevel::forward,
                           .claim = "The heads of the last rank attend without a causal mask.",
                           .reports = {"A54"},
                           .oracles = {Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
                           .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
                             if (longest_sequence(c) > 1) return std::nullopt;
                             return "one position sees itself alone, with or without a mask";
                           },
                           .inject = with_steps<UnmaskedRank>};
  return fault;
}

}  // namespace shardcheck::faults
