// How simple a case is: what every shrink step lowers.
#include <cmath>
#include <cstdlib>

#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

const Case& simplest() {
  static const Case c;
  return c;
}

double distance(std::int64_t value, std::int64_t simplest_value) {
  if (value == simplest_value) return 0.0;
  return 1.0 + std::log2(1.0 + std::abs(static_cast<double>(value) - static_cast<double>(simplest_value)));
}

double layout_size(const LayoutName& name) {
  double size = (name.table == simplest().source.table ? 0.0 : 1.0) + static_cast<double>(name.axes.size());
  for (const auto& [axis, degree] : name.axes) size += distance(degree, 1);
  return size + distance(name.first_stage_layers, 0) + distance(name.last_stage_layers, 0);
}

}  // namespace

double case_size(const Case& c) {
  const Geometry& g = c.geometry;
  const Geometry& zero = simplest().geometry;
  double size = distance(g.d_model, zero.d_model) + distance(g.n_layers, zero.n_layers) +
                distance(g.n_heads, zero.n_heads) + distance(g.n_kv_heads, zero.n_kv_heads) +
                distance(g.head_dim, zero.head_dim) + distance(g.ffn, zero.ffn) +
                distance(g.vocab, zero.vocab) + distance(g.experts_per_token, zero.experts_per_token) +
                distance(c.batch, simplest().batch) + distance(c.length, simplest().length);
  for (const std::int64_t unusual : {g.rotary_dim, g.positions, g.n_experts, g.expert_ffn, g.shared_ffn,
                                     g.dense_layers, g.q_lora, g.kv_lora, g.nope_dim, g.rope_dim, g.v_dim})
    size += distance(unusual, 0);
  for (const bool differs : {g.norm_eps != zero.norm_eps,
                             g.rope != zero.rope,
                             g.rope_theta != zero.rope_theta,
                             g.tied,
                             g.qkv_bias,
                             g.o_bias,
                             c.tree_shape != simplest().tree_shape,
                             c.leaf != simplest().leaf,
                             c.key_block != simplest().key_block,
                             !c.degrees.empty(),
                             c.exchange != simplest().exchange,
                             g.qk_norm,
                             c.dtype != simplest().dtype,
                             c.weights != simplest().weights,
                             g.norm != zero.norm,
                             !g.gated,
                             g.mlp_bias,
                             g.sinks,
                             g.parallel_residual,
                             g.router_bias,
                             g.activation != zero.activation,
                             g.alibi,
                             c.sequence_parallel,
                             c.effective != simplest().effective})
    size += differs ? 1.0 : 0.0;
  size += layout_size(c.source) + layout_size(c.target) + layout_size(c.via);
  size += c.seed == 0 ? 0.0 : 1.0 + std::log2(1.0 + static_cast<double>(c.seed));
  for (const auto* list : {&c.lengths, &c.chunks, &c.context_ends}) {
    for (const std::int64_t number : *list) size += distance(number, 0);
  }
  return size + static_cast<double>(c.input.size());
}

}  // namespace shardcheck
