// A tree whose leaves are as wide as this number of ranks allows.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t leaf_of_rank_count(std::int64_t k, int degree) { return leaf_width(k, {degree}); }

}  // namespace

// Never equivalent: another leaf rounds thousands of sums elsewhere.
const Fault& leaf_from_rank_count() {
  static const Fault fault{
      .name = "leaf_from_rank_count",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The leaves of a tree are as wide as this number of ranks allows, whatever the contract says.",
      .reports = {"seed 003"},
      .oracles = {Oracle::tree},
      .arguments = {},
      .not_applicable = [](const Case& c,
                           std::string_view) { return needs_other_leaf(c, leaf_of_rank_count); },
      .equivalent = nullptr,
      .inject = with_steps<WrongLeaf<leaf_of_rank_count>>};
  return fault;
}

}  // namespace shardcheck::faults
