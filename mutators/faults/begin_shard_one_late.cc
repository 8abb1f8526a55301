// An inclusive end taken for an exclusive one.
#include <algorithm>

#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view role) {
  const Shard* shard = sharded(entry);
  if (shard == nullptr || !belongs_to(entry, role) || !is_evenly_cut(entry)) return std::nullopt;
  const Run own = *owned_range(entry, rank, shard->dim);
  if (own.length < 2) return std::nullopt;
  if (rank == 0) return Taken{shard->dim, {own}};
  const std::int64_t last = entry.placed.shape()[static_cast<std::size_t>(shard->dim)] - 1;
  const std::int64_t after = std::min(own.length, last - own.global);
  Taken taken{shard->dim, {}};
  append_run(taken.runs, {own.global + 1, after});
  append_run(taken.runs, {last, own.length - after});
  return taken;
}

}  // namespace

// Never equivalent: rank 1 has lost its first column.
const Fault& begin_shard_one_late() {
  static const Fault fault{
      .name = "begin_shard_one_late",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "Every row-parallel shard but the first begins one column late, and the last column is repeated.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"down", "o_proj"},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "one rank, or a rank holds one column");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
