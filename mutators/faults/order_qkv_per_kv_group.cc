// Fused rows in Megatron's order, read by a consumer of sections.
#include "taken.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return stacks(entry, {"q", "k", "v"}); }

/// Local rows of [q; k; v] in the order q heads of group 0, k 0, v 0, q heads of group 1, ...
std::vector<std::int64_t> grouped_order(const Geometry& g, const LayoutEntry& entry) {
  const QkvRows rows = qkv_rows(g, entry);
  const std::int64_t groups = rows.local_kv / g.head_dim;
  const std::int64_t heads_per_group = rows.local_q / rows.local_kv;
  const std::int64_t first_k = groups * heads_per_group;
  std::vector<std::int64_t> order;
  const auto append_head = [&](std::int64_t head) {
    for (std::int64_t i = 0; i < g.head_dim; ++i) order.push_back(head * g.head_dim + i);
  };
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t i = 0; i < heads_per_group; ++i) append_head(group * heads_per_group + i);
    append_head(first_k + group);
    append_head(first_k + groups + group);
  }
  return order;
}

void damage(const Case&, const Layout& target, std::string_view argument, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!hits(entry, argument)) continue;
    const auto order = grouped_order(target.geometry, entry);
    for (Tensor& shard : shards.at(entry.name)) shard = with_rows(shard, order);
  }
}

}  // namespace

const Fault& order_qkv_per_kv_group() {
  static const Fault fault{
      .name = "order_qkv_per_kv_group",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The local q, k, v rows arrive grouped by KV head where the consumer reads all q, all k, all v.",
      .reports = {"A7", "A12", "A13", "A15", "A17"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "no tensor stacks q, k and v");
          },
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_kv_heads > c.target.tp_degree()) return std::nullopt;
        return "one KV head on each rank: its group is the section, the index maps are equal";
      },
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
