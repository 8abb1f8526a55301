// A tree with one leaf per rank: a chain over whatever the rank holds.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t leaf_of_local_k(std::int64_t k, int degree) { return k / degree; }

class LeafFromLocalK final : public StepsDecorator {
 public:
  LeafFromLocalK(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                    std::int64_t leaf) const override {
    if (site.degree == 1 || k % site.degree != 0) return inner().leaf(site, role, k, leaf);
    return leaf_of_local_k(k, site.degree);
  }
};

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
      .inject = with_steps<LeafFromLocalK>};
  return fault;
}

}  // namespace shardcheck::faults
