// One layer that keeps the weights of an earlier version.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

/// Weights of the layer as another seed draws them, under the layer's names. One layer and one vocabulary row
/// are drawn: a layer's weights depend on neither count.
TensorMap earlier_version(const Case& c, std::int64_t layer, DType dtype) {
  Geometry one = c.geometry;
  one.n_layers = 1;
  one.vocab = 1;
  one.dense_layers = one.n_experts > 0 && !c.geometry.has_experts(layer) ? 1 : 0;
  const TensorMap drawn = make_weights(one, c.weights, c.seed + 1, dtype);
  TensorMap renamed;
  for (const LogicalTensor& tensor : logical_tensors(one)) {
    if (tensor.layer == 0)
      renamed.emplace(logical_name(tensor.role, layer, tensor.expert), drawn.at(tensor.name));
  }
  return renamed;
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const std::int64_t layer = target.geometry.n_layers - 1;
  TensorMap earlier;
  for (const LayoutEntry& entry : target.entries) {
    if (entry.parts.front().layer != layer) continue;
    auto& held = shards.at(entry.name);
    if (earlier.empty()) earlier = earlier_version(c, layer, held.front().dtype());
    held = split_tensor(entry.placed, fuse(entry, earlier));
  }
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& stale_layer() {
  static const Fault fault{.name = "stale_layer",
                           .family = 'S',
                           .level = FaultLevel::sync,
                           .claim = "The last layer keeps the weights of an earlier version of the model.",
                           .reports = {"A94", "A100", "A101"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
                           .equivalent = nullptr,
                           .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
