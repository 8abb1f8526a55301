// Control: FFN channels under other names, also across ranks.
#include "relabel_control.h"

namespace shardcheck::faults {
namespace {

std::optional<Relabelling> relabelling(const Case& c, std::string_view) {
  return in_every_layer(c.geometry, {.ffn = rotated_by_one(c.geometry.ffn)});
}

void damage(const Case& c, const Layout& target, std::string_view argument, ShardedTensors& shards) {
  deliver_relabelled(target, *relabelling(c, argument), shards);
}

}  // namespace

const Fault& relabel_ffn_channels() {
  static const Fault fault{
      .name = "relabel_ffn_channels",
      .family = 'Z',
      .level = FaultLevel::plan,
      .claim = "Right: each FFN channel has the name of the one before, in gate, up and down alike.",
      .reports = {"faults.md"},
      .oracles = {},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.ffn < 2) return "one channel";
        if (c.geometry.n_experts > 0 && c.geometry.dense_layers == 0) return "no layer has an FFN of its own";
        return needs_layout(c);
      },
      .inject = with_damage<damage>,
      .relabels = relabelling};
  return fault;
}

}  // namespace shardcheck::faults
