// Several source ranks for each target rank, of which one is asked.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const int degree = entry.placed.degree(), wanted = c.target.tp_degree();
  if (degree <= wanted || degree % wanted != 0 || !is_evenly_cut(entry)) return std::nullopt;
  const int shards = degree / wanted;
  const Selection first = entry.placed.selection(rank / shards * shards);
  return Taken{first.dim, first.runs};
}

}  // namespace

// Never equivalent: the rows of the second source rank are read nowhere.
const Fault& read_first_of_source_shards() {
  static const Fault fault{
      .name = "read_first_of_source_shards",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim =
          "Where several shards of the source make one of the target, the first of them is read in place of "
          "each.",
      .reports = {"A15"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::source, taken,
                            "no several ranks of the source make one of the target");
      },
      .equivalent = nullptr,
      .inject = takes<taken, Side::source>};
  return fault;
}

}  // namespace shardcheck::faults
