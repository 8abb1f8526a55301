// Ring attention: weights relative to the largest score a rank sees itself.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class ContextRankUsesLocalMaximum final : public StepsDecorator {
 public:
  ContextRankUsesLocalMaximum(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool uses_local_maximum(const StepSite& /*site*/) const override { return true; }
};

}  // namespace

// What native does anyway: under tree it costs bits. The law context_parallel_is_invisible sees it.
const Fault& context_rank_uses_local_maximum() {
  static const Fault fault{.name = "context_rank_uses_local_maximum",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim =
                               "A context-parallel rank weighs its keys relative to its own largest score, "
                               "and the merge rescales.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "context_parallel_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(
                                     c.arithmetic == Arithmetic::tree && c.target.degree("cp") > 1, c,
                                     "one rank holds every position, or the maximum is shared by definition");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<ContextRankUsesLocalMaximum>};
  return fault;
}

}  // namespace shardcheck::faults
