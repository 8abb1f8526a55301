// A tree with one leaf per rank: a chain over whatever the rank holds.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t leaf_of_local_k(std::int64_t k, int degree) { return k / degree; }

}  // namespace

// Never equivalent: another leaf rounds thousands of sums elsewhere.
const Fault& leaf_from_local_k() {
  static const Fault fault{
      .name = "leaf_from_local_k",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "Each rank sums its whole part of K in one chain, so the leaf is as wide as the part.",
      .reports = {"seed 003"},
      .oracles = {Oracle::tree},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_other_leaf(c, leaf_of_local_k); },
      .equivalent = nullptr,
      .inject = with_steps<WrongLeaf<leaf_of_local_k>>};
  return fault;
}

}  // namespace shardcheck::faults
