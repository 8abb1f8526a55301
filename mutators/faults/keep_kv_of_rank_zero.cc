// Queries sharded, keys and values not.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!is_cut(entry) || c.geometry.n_kv_heads % entry.placed.degree() != 0) return std::nullopt;
  if (stacks_qkv(entry)) {
    const QkvRows rows = qkv_rows(c.geometry, entry);
    return with_kv_from(c.geometry, entry, rank, rows.q, rows.q + rows.kv);
  }
  const bool is_kv = entry.parts.size() == 1 && (belongs_to(entry, "k") || belongs_to(entry, "v"));
  if (!is_kv || !is_evenly_cut(entry)) return std::nullopt;
  return Taken{0, owned(entry, 0, 0)};
}

}  // namespace

// Never equivalent: with two ranks or more the KV heads of rank 1 are another's.
const Fault& keep_kv_of_rank_zero() {
  static const Fault fault{
      .name = "keep_kv_of_rank_zero",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim = "Query heads are cut over the ranks and every rank holds the KV heads of rank 0.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no k and v are cut over several ranks");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
