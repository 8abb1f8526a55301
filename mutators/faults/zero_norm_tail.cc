// A replicated norm taken for a sharded one.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return is_norm(entry) && entry.placed.degree() > 1; }

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const std::int64_t kept = entry.placed.shape()[0] / entry.placed.degree();
  for (Tensor& shard : shards) clear_rows(shard, kept, shard.dim(0) - kept);
}

}  // namespace

// Never equivalent: with two ranks or more at least half of the entries are lost.
const Fault& zero_norm_tail() {
  static const Fault fault{
      .name = "zero_norm_tail",
      .family = 'N',
      .level = FaultLevel::value,
      .claim =
          "A norm weight is loaded as if it were sharded: only a first part arrives, the rest stays zero.",
      .reports = {"A36", "A53"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c,
                           std::string_view argument) { return unless_hit(c, argument, hits, kOneRank); },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
