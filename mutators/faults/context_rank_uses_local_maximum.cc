// Ring attention: weights relative to the largest score a rank sees itself.
#include <algorithm>

#include "determinism.h"

namespace shardcheck::faults {
namespace {

class ContextRankUsesLocalMaximum final : public StepsDecorator {
 public:
  ContextRankUsesLocalMaximum(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool uses_local_maximum(const StepSite& /*site*/) const override { return true; }
};

/// Fewer merged sums than these may all round alike.
constexpr std::int64_t kEnoughMerges = 12;

/// Positions whose keys lie on more than one rank: those from the first rank's end on.
std::int64_t merged_positions(const Case& c) {
  const std::int64_t ranks = c.target.degree("cp");
  const std::int64_t end =
      c.context_ends.empty() ? (longest_sequence(c) + ranks - 1) / ranks : c.context_ends.front();
  std::int64_t positions = 0;
  for (const std::int64_t length : lengths_of(c)) positions += std::max<std::int64_t>(0, length - end);
  return positions;
}

}  // namespace

// What native does anyway: under tree it costs bits. The law context_parallel_is_invisible sees it.
const Fault& context_rank_uses_local_maximum() {
  static const Fault fault{
      .name = "context_rank_uses_local_maximum",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim =
          "A context-parallel rank weighs its keys relative to its own largest score, "
          "and the merge rescales.",
      .reports = {"seed 003"},
      .oracles = {},
      .law = "context_parallel_is_invisible",
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.arithmetic != Arithmetic::tree || c.target.degree("cp") <= 1)
          return "one rank holds every position, or the maximum is shared by definition";
        return needs(merged_positions(c) >= kEnoughMerges, c,
                     "few positions have keys on several ranks: their sums may round alike");
      },
      .equivalent = nullptr,
      .inject = with_steps<ContextRankUsesLocalMaximum>};
  return fault;
}

}  // namespace shardcheck::faults
