#include "model/rank_weights.h"

#include <string>

#include "shardcheck/arithmetic/attention.h"

namespace shardcheck {
namespace {

NormWeights read_norm(const RankSource& source, const std::string& role, std::int64_t layer) {
  return {source.values({role, layer}), source.values({role + "_bias", layer})};
}

/// `prefix`: "" for a dense MLP, "expert_" or "shared_".
MlpWeights read_mlp(const Geometry& geometry, const RankSource& source, const std::string& prefix,
                    std::int64_t layer, std::int64_t expert = -1) {
  const std::string gate = prefix + "gate", up = prefix + "up";
  MlpWeights mlp;
  if (geometry.gated) mlp.gate = source.linear({gate, layer, expert});
  mlp.up = source.linear({up, layer, expert});
  if (!prefix.empty()) return mlp;  // experts have no biases
  mlp.gate_bias = source.values({"gate_bias", layer});
  mlp.up_bias = source.values({"up_bias", layer});
  mlp.down_bias = source.values({"down_bias", layer});
  return mlp;
}

ExpertWeights read_experts(const Geometry& geometry, const RankPlace& place, const RankSource& source,
                           std::int64_t layer) {
  ExpertWeights weights;
  weights.router = source.linear({"router", layer});
  weights.router_bias = source.values({"router_bias", layer});
  for (std::int64_t expert = place.first_expert; expert < place.last_expert; ++expert)
    weights.own.push_back(read_mlp(geometry, source, "expert_", layer, expert));
  if (geometry.shared_ffn > 0) weights.shared = read_mlp(geometry, source, "shared_", layer);
  return weights;
}

LayerWeights read_layer(const Geometry& geometry, const RankPlace& place, const RankSource& source,
                        std::int64_t layer) {
  LayerWeights weights;
  weights.attn_norm = read_norm(source, "attn_norm", layer);
  weights.ffn_norm = read_norm(source, "ffn_norm", layer);
  weights.q = source.linear({"q", layer});
  weights.k = source.linear({"k", layer});
  weights.v = source.linear({"v", layer});
  weights.q_bias = source.values({"q_bias", layer});
  weights.k_bias = source.values({"k_bias", layer});
  weights.v_bias = source.values({"v_bias", layer});
  weights.o_bias = source.values({"o_bias", layer});
  weights.q_norm = source.values({"q_norm", layer});
  weights.k_norm = source.values({"k_norm", layer});
  weights.sinks = source.values({"sinks", layer});
  if (geometry.has_experts(layer)) {
    weights.experts = read_experts(geometry, place, source, layer);
  } else {
    weights.dense = read_mlp(geometry, source, "", layer);
  }
  return weights;
}

std::vector<float> local_slopes(const Geometry& geometry, const RankPlace& place, std::int64_t first_head) {
  if (!geometry.alibi) return {};
  const std::vector<float> all = alibi_slopes(geometry.n_heads);
  const auto first = all.begin() + first_head;
  return {first, first + place.extent.heads};
}

}  // namespace

RankWeights::RankWeights(const Geometry& geometry, const RankPlace& own_place, const RankSource& source,
                         std::int64_t first_head)
    : place(own_place), slopes(local_slopes(geometry, own_place, first_head)) {
  if (place.first_stage) {
    embed = source.rows({"embed"});
    positions = source.values({"positions"});
  }
  for (std::int64_t i = place.first_layer; i < place.last_layer; ++i)
    layers.push_back(read_layer(geometry, place, source, i));
  if (place.last_stage) {
    final_norm = read_norm(source, "final_norm", -1);
    lm_head = source.linear({"lm_head"});
  }
}

}  // namespace shardcheck
