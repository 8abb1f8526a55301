// Norm weights that were never loaded: they keep the ones they were initialised with.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return is_norm(entry); }

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const float one = 1.0F + entry.arrangement().shift;
  for (Tensor& shard : shards) change_values(shard, [one](float) { return one; });
}

}  // namespace

// Never equivalent: random norms are not ones.
const Fault& leave_norms_at_one() {
  static const Fault fault{.name = "leave_norms_at_one",
                           .family = 'N',
                           .level = FaultLevel::value,
                           .claim = "No norm weight is loaded: every norm scales by one.",
                           .reports = {"A64", "A94"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
