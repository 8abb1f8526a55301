// A file of alternating gate and up rows, cut as two halves.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!stacks(entry, {"gate", "up"}) || c.geometry.ffn < 2) return std::nullopt;
  return cut_in_order(entry, rank, runs_of({c.geometry.ffn, {1, 1}}));
}

}  // namespace

// Never equivalent: what is taken for the first up, halfway down the file, belongs to a later channel.
const Fault& cut_alternating_gate_and_up() {
  static const Fault fault{
      .name = "cut_alternating_gate_and_up",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "The file's gate and up rows alternate and are cut as if all gates came first.",
      .reports = {"A18", "A20"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor stacks gate and up of two channels or more");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
