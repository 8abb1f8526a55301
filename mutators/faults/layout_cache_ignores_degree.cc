// Where shards begin, remembered from another degree.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool is_cut_by_columns(const LayoutEntry& entry, const Layout&) {
  return stacks(entry, {"down"}) && is_cut(entry) && entry.placed.selection(0).dim == 1;
}

/// Where rank `rank` of `ranks` begins; a rank beyond them is taken for one of them.
std::int64_t remembered_begin(const LayoutEntry& entry, int rank, std::int64_t ranks) {
  return entry.placed.shape()[1] * (rank % ranks) / ranks;
}

bool begins_elsewhere(const LayoutEntry& entry, std::int64_t remembered) {
  for (int rank = 0; rank < entry.placed.degree(); ++rank) {
    const Selection owned = entry.placed.selection(rank);
    if (!owned.runs.empty() && owned.runs.front().global != remembered_begin(entry, rank, remembered))
      return true;
  }
  return false;
}

/// Columns [begin, begin + of the shard's width) of the full tensor.
void read_columns(const Tensor& full, std::int64_t begin, Tensor& shard) {
  const Tensor turned = transposed(full);
  shard = transposed(turned.rows(begin, shard.dim(1)));
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const std::int64_t remembered = c.source.tp_degree();
  for (const LayoutEntry& entry : target.entries) {
    if (!is_cut_by_columns(entry, target)) continue;
    auto& held = shards.at(entry.name);
    const Tensor full = gather_tensor(entry.placed, held);
    for (std::size_t rank = 0; rank < held.size(); ++rank)
      read_columns(full, remembered_begin(entry, static_cast<int>(rank), remembered), held[rank]);
  }
}

}  // namespace

// Never equivalent: a rank that the source has not begins where another does, and where the source has more
// ranks the second one begins too early.
const Fault& layout_cache_ignores_degree() {
  static const Fault fault{
      .name = "layout_cache_ignores_degree",
      .family = 'S',
      .level = FaultLevel::plan,
      .claim = "Shards of down begin where those of the source's degree do, which were computed before.",
      .reports = {"A112"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.source.tp_degree() == c.target.tp_degree()) return "source and target have one degree";
        const auto moves = [&](const LayoutEntry& entry, const Layout& layout) {
          return is_cut_by_columns(entry, layout) && begins_elsewhere(entry, c.source.tp_degree());
        };
        return unless_any(c, moves, "one rank, or every rank begins where those of the source do");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
