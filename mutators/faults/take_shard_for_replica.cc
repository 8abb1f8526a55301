// A sharded source taken for a replicated one.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int, std::string_view) {
  if (!is_evenly_cut(entry)) return std::nullopt;
  const Selection first = entry.placed.selection(0);
  return Taken{first.dim, first.runs};
}

}  // namespace

// Never equivalent: with two ranks or more the rows of rank 1 are read nowhere.
const Fault& take_shard_for_replica() {
  static const Fault fault{
      .name = "take_shard_for_replica",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "Every shard of the source is taken for a copy of the first, so rank 0's part stands in for all of "
          "them.",
      .reports = {"A34", "A36"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::source, taken,
                            "the source is one rank, or cuts nothing evenly");
      },
      .equivalent = nullptr,
      .inject = takes<taken, Side::source>};
  return fault;
}

}  // namespace shardcheck::faults
