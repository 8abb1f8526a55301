// The shape of a model: a pure value, validated before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/tensor/tensor.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {

enum class Rope : std::uint8_t { none, half };
std::string_view to_string(Rope rope) noexcept;

/// rms: a gain; layer: a gain and a bias (GPT-2, NeoX).
enum class Norm : std::uint8_t { rms, layer };
std::string_view to_string(Norm norm) noexcept;

/// Of the MLP: silu (Llama), gelu_tanh (GPT-2's approximation), gelu (by the error function, NeoX).
enum class Activation : std::uint8_t { silu, gelu_tanh, gelu };
std::string_view to_string(Activation activation) noexcept;

struct Geometry {
  std::int64_t d_model = 256;
  std::int64_t n_layers = 4;
  std::int64_t n_heads = 8;
  std::int64_t n_kv_heads = 2;
  std::int64_t head_dim = 32;
  std::int64_t ffn = 704;
  std::int64_t vocab = 32000;
  double norm_eps = 1e-6;
  Rope rope = Rope::none;
  double rope_theta = 10000.0;
  std::int64_t rotary_dim = 0;  // leading dimensions of a head that RoPE rotates (NeoX), 0: all of them
  bool tied = false;            // lm_head is embed
  bool qkv_bias = false;        // bias on q, k, v (Qwen2)
  bool o_bias = false;          // bias on the row-parallel o_proj (Llama's attention_bias has both)
  bool qk_norm = false;         // RMSNorm over head_dim on q and k (Qwen3)

  // Other families than Llama.
  Norm norm = Norm::rms;
  Activation activation = Activation::silu;
  bool gated = true;               // gate and up projections; false: up alone (GPT-2, NeoX)
  bool mlp_bias = false;           // bias on the projections of the MLP
  bool sinks = false;              // one attention sink per query head (gpt-oss)
  bool parallel_residual = false;  // the MLP reads the layer's input, beside the attention (NeoX, GPT-J)
  bool alibi = false;              // scores fall linearly with distance, a slope per head (BLOOM, MPT)
  std::int64_t positions = 0;      // rows of a learned position embedding, 0 = none (GPT-2)

  // Mixture of experts, 0 experts: every layer is dense.
  std::int64_t n_experts = 0;
  std::int64_t experts_per_token = 2;  // that a token is routed to, never more than there are
  std::int64_t expert_ffn = 0;         // width of one expert
  std::int64_t shared_ffn = 0;         // width of the shared expert, 0 = none
  std::int64_t dense_layers = 0;       // the first layers keep a dense MLP (DeepSeek)
  bool router_bias = false;            // DeepSeek's e_score_correction_bias

  // Multi-head latent attention (DeepSeek), kv_lora 0: ordinary attention. It has layouts, plans and digests;
  // a forward pass refuses it (`require_forward`).
  std::int64_t q_lora = 0;  // 0: the query is projected directly
  std::int64_t kv_lora = 0;
  std::int64_t nope_dim = 0;  // of a head's query and key, without position
  std::int64_t rope_dim = 0;  // with position, shared by all heads on the key's side
  std::int64_t v_dim = 0;     // of a head's value

  bool operator==(const Geometry&) const = default;
  std::int64_t attention_width() const { return n_heads * head_dim; }
  std::int64_t kv_width() const { return n_kv_heads * head_dim; }
  std::int64_t rotary_width() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  bool has_experts(std::int64_t layer) const { return n_experts > 0 && layer >= dense_layers; }
};

/// Throws InvalidInput: every extent in 1..2^24, layers <= 1024, n_heads a multiple of n_kv_heads,
/// head_dim even when RoPE is used, eps and theta finite and positive, at most 2^40 elements in all; experts
/// (at most 2^16, at most 2^20 in all layers) and latent attention with every width they need and none
/// without them; experts_per_token in 1..2^16, positions in 0..2^24. ALiBi goes with everything, RoPE and
/// learned positions too.
void validate(const Geometry& geometry);

/// Throws InvalidInput naming the field when the geometry is one that no forward pass here runs: latent
/// attention.
void require_forward(const Geometry& geometry);

/// The two recorded configurations of the seed document (d_model 256, 4 layers, 8 heads, head_dim 32,
/// ffn 704, vocab 32000, no RoPE, untied), with 2 and 4 KV heads.
Geometry toy();
Geometry toy_kv4();

/// "d_model=256 layers=4 ...": every field of an ordinary Llama, the others where they are set.
std::string to_string(const Geometry& geometry);

/// A logical (unfused, unsharded) tensor: what every layout table is written in terms of.
/// Names: embed, positions, layers.N.{q,k,v,o_proj,gate,up,down,attn_norm,ffn_norm,q_bias,k_bias,v_bias,
/// o_bias,q_norm,k_norm,...}, layers.N.experts.E.{gate,up,down}, final_norm, lm_head (absent when tied).
struct LogicalTensor {
  std::string name;
  std::string role;         // what the tensor is, without layer and expert: "q", "expert_gate"
  std::int64_t layer = -1;  // -1 outside layers
  Shape shape;
  std::int64_t expert = -1;  // -1 outside experts
};

/// "layers.3.q", "layers.3.experts.17.gate" for role expert_gate, or the role itself outside layers.
std::string logical_name(std::string_view role, std::int64_t layer, std::int64_t expert = -1);

/// Every logical tensor of a model, in the seed's draw order: embed; per layer q, k, v, (biases), o_proj,
/// (o_bias), gate, up, down, attn_norm, ffn_norm, (q_norm, k_norm); final_norm; lm_head. What a Llama lacks
/// follows its neighbours: positions after embed, biases after their matrix, latent projections in place of
/// q, k, v, router, experts and shared expert in place of the dense MLP.
std::vector<LogicalTensor> logical_tensors(const Geometry& geometry);

}  // namespace shardcheck
