// One copy of a resharding left out.
#include "taken.h"

namespace shardcheck::faults {
namespace {

/// Start of the last source shard that begins inside the range, its end where none does.
std::int64_t last_boundary(const Run& own, std::int64_t shard) {
  const std::int64_t end = own.global + own.length;
  const std::int64_t boundary = (end - 1) / shard * shard;
  return boundary > own.global ? boundary : end;
}

bool spans(const LayoutEntry& entry, int dim, std::int64_t shard) {
  for (int rank = 0; rank < entry.placed.degree(); ++rank) {
    const auto own = owned_range(entry, rank, dim);
    if (own && last_boundary(*own, shard) < own->global + own->length) return true;
  }
  return false;
}

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!stacks(entry, {"down"}) || !owned_range(entry, 0, 1)) return std::nullopt;
  const std::int64_t length = entry.placed.shape()[1];
  const int sources = c.source.tp_degree();
  if (length % sources != 0 || !spans(entry, 1, length / sources)) return std::nullopt;
  const Run own = *owned_range(entry, rank, 1);
  const std::int64_t kept = last_boundary(own, length / sources) - own.global;
  Taken taken{1, {}};
  append_run(taken.runs, {own.global, kept});
  append_run(taken.runs, {kPadding, own.length - kept});
  return taken;
}

}  // namespace

// Never equivalent: columns of some rank stay zero.
const Fault& skip_interval() {
  static const Fault fault{
      .name = "skip_interval",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "A rank whose columns come from several ranks of the source never receives those of the last, "
          "which stay zero.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no rank's columns come from several ranks of the source");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
