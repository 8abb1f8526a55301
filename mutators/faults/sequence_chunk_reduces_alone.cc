// A rank that holds a share of the tokens and sums in an order of its own.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t two_of_a_share(const StepSite& site) { return site.sequence_parallel ? 2 : 1; }

}  // namespace

// The law sequence_parallel_is_invisible tells it by running both ways.
const Fault& sequence_chunk_reduces_alone() {
  static const Fault fault{.name = "sequence_chunk_reduces_alone",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim =
                               "Under sequence parallelism a rank sums the norm statistics of its share of "
                               "the tokens in two chains.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "sequence_parallel_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(
                                     (c.sequence_parallel || c.law == "sequence_parallel_is_invisible") &&
                                         c.target.tp_degree() > 1,
                                     c, "no rank keeps a share of the tokens");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<NormInParts<two_of_a_share>>};
  return fault;
}

}  // namespace shardcheck::faults
