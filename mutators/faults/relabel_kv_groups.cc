// Control: KV groups, with the query heads that read them, under other names.
#include "relabel_control.h"

namespace shardcheck::faults {
namespace {

std::optional<Relabelling> relabelling(const Case& c, std::string_view) {
  const std::int64_t group = c.geometry.n_heads / c.geometry.n_kv_heads;
  LayerRelabelling layer{.kv_heads = rotated_by_one(c.geometry.n_kv_heads)};
  for (const std::int64_t kv_head : layer.kv_heads) {
    for (std::int64_t i = 0; i < group; ++i) layer.heads.push_back(kv_head * group + i);
  }
  return in_every_layer(c.geometry, layer);
}

void damage(const Case& c, const Layout& target, std::string_view argument, ShardedTensors& shards) {
  deliver_relabelled(target, *relabelling(c, argument), shards);
}

}  // namespace

const Fault& relabel_kv_groups() {
  static const Fault fault{
      .name = "relabel_kv_groups",
      .family = 'Z',
      .level = FaultLevel::plan,
      .claim = "Right: each KV group has the name of the one before, in q, k, v and o_proj alike.",
      .reports = {"faults.md"},
      .oracles = {},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_kv_heads < 2) return "one KV group";
        if (c.geometry.alibi) return "the slope of a head depends on its place";
        if (c.geometry.kv_lora > 0) return "latent attention has no KV groups";
        return needs_layout(c);
      },
      .inject = with_damage<damage>,
      .relabels = relabelling};
  return fault;
}

}  // namespace shardcheck::faults
