// Seed case 3: every norm weight rolled by rank times its shard width.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_norm(entry) && entry.placed.degree() > 1 && entry.placed.shape()[0] >= entry.placed.degree();
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  for (std::size_t rank = 1; rank < shards.size(); ++rank) {
    const std::int64_t width = shards[rank].dim(0) / entry.placed.degree();
    shards[rank] = rolled(shards[rank], static_cast<std::int64_t>(rank) * width);
  }
}

}  // namespace

// Never equivalent: rank 1 rolls by at least one and at most half of the entries.
const Fault& rotate_norm_by_rank() {
  static const Fault fault{
      .name = "rotate_norm_by_rank",
      .family = 'N',
      .level = FaultLevel::value,
      .claim = "Each rank holds its norm weights rolled by its rank times the width a shard would have.",
      .reports = {"seed case 3"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits,
                              "one rank, or more ranks than norm entries: the roll is by zero");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
