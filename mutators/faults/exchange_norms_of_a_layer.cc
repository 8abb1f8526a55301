// The two norms of a layer, whose shapes and names are alike.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (std::int64_t layer = 0; layer < target.geometry.n_layers; ++layer) {
    auto& first = shards.at(target.entry_of(logical_name("attn_norm", layer)).name);
    std::swap(first, shards.at(target.entry_of(logical_name("ffn_norm", layer)).name));
  }
}

}  // namespace

// Never equivalent: both are drawn independently and scale different inputs.
const Fault& exchange_norms_of_a_layer() {
  static const Fault fault{
      .name = "exchange_norms_of_a_layer",
      .family = 'N',
      .level = FaultLevel::plan,
      .claim = "The norm before the attention and the norm before the MLP have changed places.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
