// A stride of one channel less than a shard holds.
#include "taken.h"

namespace shardcheck::faults {
namespace {

/// Dimension of the channels, -1 for a tensor that has none.
int channel_dim(const LayoutEntry& entry) {
  if (stacks(entry, {"gate", "up"}) || stacks(entry, {"gate"}) || stacks(entry, {"up"})) return 0;
  return stacks(entry, {"down"}) ? 1 : -1;
}

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const int dim = channel_dim(entry);
  if (dim < 0 || !is_evenly_cut(entry)) return std::nullopt;
  Taken taken{dim, {}};
  for (const Run& own : owned(entry, rank, dim)) append_run(taken.runs, {own.global - rank, own.length});
  return taken;
}

}  // namespace

// Never equivalent: the last channel is computed nowhere.
const Fault& overlap_channel_intervals() {
  static const Fault fault{
      .name = "overlap_channel_intervals",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "A rank's channels begin one earlier for each rank before it, so neighbours overlap and the last "
          "channels are lost.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no channels are cut evenly over several ranks");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
