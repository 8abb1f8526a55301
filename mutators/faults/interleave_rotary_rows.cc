// Rows in the order of the pairs for a consumer of halves.
#include "taken.h"

namespace shardcheck::faults {
namespace {

/// Heads at the front of the tensor that turn, 0 where none of it does.
std::int64_t rotary_heads(const LayoutEntry& entry, const Geometry& g) {
  if (stacks_qkv(entry)) return g.n_heads + g.n_kv_heads;
  if (stacks(entry, {"q"}) || stacks(entry, {"q_bias"})) return g.n_heads;
  return stacks(entry, {"k"}) || stacks(entry, {"k_bias"}) ? g.n_kv_heads : 0;
}

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  const std::int64_t heads = rotary_heads(entry, g);
  if (heads == 0) return std::nullopt;
  std::vector<Run> order = interleaved_rotary(heads, g.head_dim, g.rotary_width());
  const std::int64_t rotated = heads * g.head_dim;
  append_run(order, {rotated, entry.placed.shape()[0] - rotated});
  return cut_in_order(entry, rank, order);
}

}  // namespace

const Fault& interleave_rotary_rows() {
  static const Fault fault{
      .name = "interleave_rotary_rows",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The rows of q and k arrive with rotary pairs side by side where the consumer pairs the halves of "
          "a head.",
      .reports = {"A23"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (c.geometry.rope == Rope::none) return "the model has no rotary embedding";
        if (auto reason = needs_two_positions(c)) return reason;
        return unless_taken(c, argument, Side::target, taken,
                            "the rows of q and k are dealt out or reordered");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
