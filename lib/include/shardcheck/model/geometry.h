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
  bool tied = false;      // lm_head is embed
  bool qkv_bias = false;  // bias on q, k, v (Qwen2)
  bool o_bias = false;    // bias on the row-parallel o_proj (Llama's attention_bias has both)
  bool qk_norm = false;   // RMSNorm over head_dim on q and k (Qwen3)

  bool operator==(const Geometry&) const = default;
  std::int64_t attention_width() const { return n_heads * head_dim; }
  std::int64_t kv_width() const { return n_kv_heads * head_dim; }
};

/// Throws InvalidInput: every extent in 1..2^24, layers <= 1024, n_heads a multiple of n_kv_heads,
/// head_dim even when RoPE is used, eps and theta finite and positive, fewer than 2^40 elements in all.
void validate(const Geometry& geometry);

/// The two recorded configurations of the seed document (d_model 256, 4 layers, 8 heads, head_dim 32,
/// ffn 704, vocab 32000, no RoPE, untied), with 2 and 4 KV heads.
Geometry toy();
Geometry toy_kv4();

/// "d_model=256 layers=4 ...", every field.
std::string to_string(const Geometry& geometry);

/// A logical (unfused, unsharded) tensor: what every layout table is written in terms of.
/// Names: embed, layers.N.{q,k,v,o_proj,gate,up,down,attn_norm,ffn_norm,q_bias,k_bias,v_bias,q_norm,k_norm},
/// o_bias, final_norm, lm_head (absent when tied).
struct LogicalTensor {
  std::string name;
  std::string role;         // name without "layers.N."
  std::int64_t layer = -1;  // -1 outside layers
  Shape shape;
};

/// "layers.3.q", or the role itself outside layers (layer -1).
std::string logical_name(std::string_view role, std::int64_t layer);

/// Every logical tensor of a model, in the seed's draw order: embed; per layer q, k, v, (biases), o_proj,
/// (o_bias), gate, up, down, attn_norm, ffn_norm, (q_norm, k_norm); final_norm; lm_head.
std::vector<LogicalTensor> logical_tensors(const Geometry& geometry);

}  // namespace shardcheck
