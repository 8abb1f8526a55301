// Two dimensions of a head exchanged in q and in k alike.
#include "taken.h"

namespace shardcheck::faults {
namespace {

void swap_first_dims(Tensor& tensor, std::int64_t heads, std::int64_t head_dim) {
  for (std::int64_t head = 0; head < heads; ++head)
    swap_rows(tensor, head * head_dim, head * head_dim + 1, 1);
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const Geometry& g = target.geometry;
  for (const LayoutEntry& entry : target.entries) {
    if (entry.parts.front().layer != 0) continue;
    Tensor& last = last_held(shards.at(entry.name));
    if (stacks(entry, {"q", "k", "v"})) {
      const QkvRows rows = qkv_rows(g, entry);
      swap_first_dims(last, (rows.local_q + rows.local_kv) / g.head_dim, g.head_dim);
    }
    if (stacks(entry, {"q"}) || stacks(entry, {"k"}))
      swap_first_dims(last, last.dim(0) / g.head_dim, g.head_dim);
  }
}

}  // namespace

const Fault& swap_dims_inside_heads() {
  static const Fault fault{
      .name = "swap_dims_inside_heads",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "Two dimensions inside every head are exchanged in q and k of the last rank, which a model without "
          "RoPE cannot see.",
      .reports = {"A21", "A22", "A23"},
      .oracles = {Oracle::layout},  // without RoPE the scores are the same sums in another order
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.head_dim < 2) return "a head of one dimension has nothing to exchange";
        return needs_plain_heads(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
