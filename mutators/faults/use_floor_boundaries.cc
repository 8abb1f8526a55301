// Floor division for the starts, though not for the sizes.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const std::int64_t items = uneven_items(entry, SplitPolicy::chunk);
  if (items == 0) return std::nullopt;
  return begun_at(entry, rank, items / entry.placed.degree() * rank * sharded(entry)->unit);
}

}  // namespace

// Never equivalent: rank 1 begins one row before the end of rank 0.
const Fault& use_floor_boundaries() {
  static const Fault fault{
      .name = "use_floor_boundaries",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "The vocabulary is cut by torch.chunk and a rank's rows begin at its number times floor(n / t).",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "the ranks divide the vocabulary, or it is not cut by torch.chunk");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
