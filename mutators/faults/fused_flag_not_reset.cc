// A tensor cut as if it were fused, because the one before it was.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool is_hit(const LayoutEntry& entry, const Layout&) {
  return stacks(entry, {"down"}) && is_cut(entry) && entry.placed.selection(0).dim == 1 &&
         entry.placed.shape()[1] % (2 * entry.placed.degree()) == 0;
}

bool is_fused(const LayoutEntry& entry, const Layout&) { return stacks(entry, {"gate", "up"}); }

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!is_hit(entry, target)) continue;
    const std::int64_t width = entry.placed.shape()[1];
    recut(entry, fused_paired({0, width / 2}, {width / 2, width}, 1), shards.at(entry.name));
  }
}

}  // namespace

// Never equivalent: the first rank has columns of the second half.
const Fault& fused_flag_not_reset() {
  static const Fault fault{
      .name = "fused_flag_not_reset",
      .family = 'S',
      .level = FaultLevel::plan,
      .claim = "Down, which follows the fused gate and up, is cut in two halves as they are.",
      .reports = {"A113"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (auto reason = unless_any(c, is_fused, "no tensor before it is fused")) return reason;
        return unless_any(c, is_hit, "one rank, or halves that do not divide");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
