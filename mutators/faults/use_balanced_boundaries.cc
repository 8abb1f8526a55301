// Boundaries of another rule of division than the shapes follow.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const std::int64_t items = uneven_items(entry, SplitPolicy::chunk);
  if (items == 0) return std::nullopt;
  const auto range = part_of(SplitPolicy::balanced, items, entry.placed.degree(), rank);
  return begun_at(entry, rank, range.first * sharded(entry)->unit);
}

}  // namespace

const Fault& use_balanced_boundaries() {
  static const Fault fault{
      .name = "use_balanced_boundaries",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "The vocabulary is cut by torch.chunk and a rank's rows begin where numpy.array_split puts them.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "the ranks divide the vocabulary, or it is not cut by torch.chunk");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
