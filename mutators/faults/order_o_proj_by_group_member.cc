// The columns of o_proj in another order of the heads than q has.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!stacks(entry, {"o_proj"})) return std::nullopt;
  return Taken{1, compose_runs(heads_by_member(c.geometry), owned(entry, rank, 1))};
}

}  // namespace

const Fault& order_o_proj_by_group_member() {
  static const Fault fault{
      .name = "order_o_proj_by_group_member",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "The output projection's columns are ordered by the place of a head in its KV group first, where q "
          "goes group by group.",
      .reports = {"A29", "A30"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no tensor holds the output projection alone");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
