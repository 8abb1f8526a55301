// A tree whose leaves are as wide as this number of ranks allows.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t leaf_of_rank_count(std::int64_t k, int degree) { return leaf_width(k, {degree}); }

class LeafFromRankCount final : public StepsDecorator {
 public:
  LeafFromRankCount(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                    std::int64_t leaf) const override {
    if (site.degree == 1 || k % site.degree != 0) return inner().leaf(site, role, k, leaf);
    return leaf_of_rank_count(k, site.degree);
  }
};

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
      .inject = with_steps<LeafFromRankCount>};
  return fault;
}

}  // namespace shardcheck::faults
