#include "model/reference_weights.h"

#include "model/blocks.h"

namespace shardcheck {

std::vector<float> LogicalLayer::vector(std::string_view role) const {
  const auto found = weights_.find(logical_name(role, layer_));
  return found == weights_.end() ? std::vector<float>{} : widened(found->second);
}

ReferenceMlp::ReferenceMlp(const Geometry& geometry, const LogicalLayer& layer, const std::string& prefix,
                           std::int64_t leaf, std::int64_t expert)
    : up(layer.linear(prefix + "up", expert)),
      down(layer, prefix + "down", prefix.empty() ? layer.vector("down_bias") : std::vector<float>{}, leaf,
           expert) {
  if (geometry.gated) gate = layer.linear(prefix + "gate", expert);
  if (!prefix.empty()) return;  // experts have no biases
  gate_bias = layer.vector("gate_bias");
  up_bias = layer.vector("up_bias");
}

ReferenceExperts::ReferenceExperts(const Geometry& geometry, const LogicalLayer& layer,
                                   const Contract& contract)
    : router(layer.linear("router")), router_bias(layer.vector("router_bias")) {
  for (std::int64_t expert = 0; expert < geometry.n_experts; ++expert)
    experts.emplace_back(geometry, layer, "expert_", contract.leaf_expert_ffn, expert);
  if (geometry.shared_ffn > 0) shared.emplace(geometry, layer, "shared_", contract.leaf_shared_ffn);
}

ReferenceLayer::ReferenceLayer(const Geometry& geometry, const LogicalLayer& layer, const Contract& contract)
    : attn_norm(layer, "attn_norm"),
      ffn_norm(layer, "ffn_norm"),
      q(layer.linear("q")),
      k(layer.linear("k")),
      v(layer.linear("v")),
      q_bias(layer.vector("q_bias")),
      k_bias(layer.vector("k_bias")),
      v_bias(layer.vector("v_bias")),
      q_norm(layer.vector("q_norm")),
      k_norm(layer.vector("k_norm")),
      sinks(layer.vector("sinks")),
      o_proj(layer, "o_proj", layer.vector("o_bias"), contract.leaf_attention) {
  if (geometry.has_experts(layer.index())) {
    experts.emplace(geometry, layer, contract);
  } else {
    dense.emplace(geometry, layer, "", contract.leaf_ffn);
  }
}

}  // namespace shardcheck
