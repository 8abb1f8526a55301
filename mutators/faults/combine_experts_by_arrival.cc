// Experts added up in the order in which ranks deliver them.
#include <algorithm>

#include "determinism.h"

namespace shardcheck::faults {
namespace {

class CombineExpertsByArrival final : public StepsDecorator {
 public:
  CombineExpertsByArrival(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  void order_experts(const StepSite& /*site*/, int expert_degree, int /*expert_rank*/,
                     std::span<std::int64_t> experts) const override {
    if (expert_degree > 1) std::ranges::reverse(experts);
  }
};

}  // namespace

// The law expert_parallel_is_invisible sees it.
const Fault& combine_experts_by_arrival() {
  static const Fault fault{.name = "combine_experts_by_arrival",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim =
                               "The outputs of a token's experts are added in the order in which ranks "
                               "deliver them, the last rank first.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "expert_parallel_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(c.arithmetic == Arithmetic::tree && c.target.degree("ep") > 1 &&
                                                  c.geometry.experts_per_token > 1,
                                              c,
                                              "every token has one expert, or all experts are on every rank");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<CombineExpertsByArrival>};
  return fault;
}

}  // namespace shardcheck::faults
