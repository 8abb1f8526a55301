// A short last shard whose start is moved so that a full one fits.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (uneven_items(entry, SplitPolicy::chunk) == 0) return std::nullopt;
  const Shard* shard = sharded(entry);
  const std::int64_t length = entry.placed.shape()[static_cast<std::size_t>(shard->dim)];
  const std::int64_t part = length_of(owned(entry, 0, shard->dim));
  if (length % part == 0) return std::nullopt;
  Taken taken{shard->dim, owned(entry, rank, shard->dim)};
  const std::int64_t own = length_of(taken.runs);
  if (own > 0 && own < part) taken.runs = {{length - part, own}};
  return taken;
}

}  // namespace

// Never equivalent: the short part begins later than a whole one would.
const Fault& clamp_short_shard() {
  static const Fault fault{
      .name = "clamp_short_shard",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim = "The last, short part of the vocabulary begins where a whole part would still fit.",
      .reports = {"A87"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no rank's part of the vocabulary is shorter than the others'");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
