// The query heads dealt out over the KV groups where each group has its own in a row.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const bool alone = stacks(entry, {"q"}) || stacks(entry, {"q_bias"});
  if (!alone && !stacks_qkv(entry)) return std::nullopt;
  std::vector<Run> order = heads_by_member(c.geometry);
  const std::int64_t q = c.geometry.attention_width();
  append_run(order, {q, entry.placed.shape()[0] - q});
  return cut_in_order(entry, rank, order);
}

}  // namespace

const Fault& order_q_by_group_member() {
  static const Fault fault{
      .name = "order_q_by_group_member",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "The rows of q are ordered by the place of a head in its KV group first, so heads meet the keys of "
          "other groups.",
      .reports = {"A29", "A30"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (auto reason = needs_two_positions(c)) return reason;
        return unless_taken(c, argument, Side::target, taken, "the rows of q are dealt out or reordered");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
