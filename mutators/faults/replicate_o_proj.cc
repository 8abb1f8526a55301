// The second half of a column and row pair that is not cut.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int, std::string_view) {
  if (!stacks(entry, {"o_proj"}) || !is_evenly_cut(entry)) return std::nullopt;
  const Selection first = entry.placed.selection(0);
  return Taken{first.dim, first.runs};
}

}  // namespace

// Never equivalent: the columns of rank 1 are used by nobody.
const Fault& replicate_o_proj() {
  static const Fault fault{
      .name = "replicate_o_proj",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "The output projection is whole on every rank while q, k and v are cut, so that each rank's heads "
          "meet the columns of the first.",
      .reports = {"A34"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no output projection is cut evenly");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
