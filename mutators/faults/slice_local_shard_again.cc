// A rank's own shard taken for the whole tensor.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const int degree = entry.placed.degree();
  const Shard* shard = sharded(entry);
  if (shard == nullptr || !(belongs_to(entry, "o_proj") || belongs_to(entry, "down"))) return std::nullopt;
  if (!is_evenly_cut(entry) || owned_range(entry, 0, shard->dim)->length % degree != 0) return std::nullopt;
  const Run own = *owned_range(entry, rank, shard->dim);
  const std::int64_t width = own.length / degree;
  Taken taken{shard->dim, {}};
  for (int copy = 0; copy < degree; ++copy) append_run(taken.runs, {own.global + rank * width, width});
  return taken;
}

}  // namespace

// Never equivalent: with two ranks or more a slice is not its shard, and its copies are equal.
const Fault& slice_local_shard_again() {
  static const Fault fault{
      .name = "slice_local_shard_again",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim = "A row-parallel shard is sliced by the rank once more and the slice repeated over its width.",
      .reports = {"A35"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "one rank, or no row-parallel shard can be cut again");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
