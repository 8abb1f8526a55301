// The rank index that is always 0.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool takes_shard_zero(const LayoutEntry& entry, int rank) {
  const Shape first = entry.placed.local_shape(0);
  return element_count(first) > 0 && entry.placed.local_shape(rank) == first;
}

bool hits(const LayoutEntry& entry, std::string_view) { return is_cut(entry) && takes_shard_zero(entry, 1); }

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  for (std::size_t rank = 1; rank < shards.size(); ++rank) {
    if (takes_shard_zero(entry, static_cast<int>(rank))) shards[rank] = shards[0];
  }
}

}  // namespace

// Never equivalent: with two ranks or more the heads of rank 1 are computed nowhere.
const Fault& every_rank_loads_shard_zero() {
  static const Fault fault{
      .name = "every_rank_loads_shard_zero",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim = "Every rank loads the shard of rank 0.",
      .reports = {"A41"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c,
                           std::string_view argument) { return unless_hit(c, argument, hits, kOneRank); },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
