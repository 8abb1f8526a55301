// Control: the query heads of each KV group in reverse.
#include <algorithm>

#include "relabel_control.h"

namespace shardcheck::faults {
namespace {

std::optional<Relabelling> relabelling(const Case& c, std::string_view) {
  const std::int64_t group = c.geometry.n_heads / c.geometry.n_kv_heads;
  LayerRelabelling layer;
  for (std::int64_t head = 0; head < c.geometry.n_heads; ++head)
    layer.heads.push_back(head / group * group + (group - 1 - head % group));
  return in_every_layer(c.geometry, layer);
}

void damage(const Case& c, const Layout& target, std::string_view argument, ShardedTensors& shards) {
  deliver_relabelled(target, *relabelling(c, argument), shards);
}

}  // namespace

const Fault& relabel_heads_in_group() {
  static const Fault fault{
      .name = "relabel_heads_in_group",
      .family = 'Z',
      .level = FaultLevel::plan,
      .claim =
          "Right: the query heads that read one KV head are in reverse order, in the rows of q and the "
          "columns of o_proj alike.",
      .reports = {"faults.md"},
      .oracles = {},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_heads == c.geometry.n_kv_heads) return "one query head reads each KV head";
        if (c.geometry.alibi) return "the slope of a head depends on its place";
        if (c.geometry.kv_lora > 0) return "latent attention has no KV groups";
        return needs_layout(c);
      },
      .inject = with_damage<damage>,
      .relabels = relabelling};
  return fault;
}

}  // namespace shardcheck::faults
