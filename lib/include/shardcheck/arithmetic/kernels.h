// The rest of a forward pass: norms, rotary embedding, attention, activation. Each is a function of plain
// f32 arrays with a fixed order of operations; sums follow the leaf and tree of the contract, or one
// ascending chain when leaf is 0 (`native`).
#pragma once

#include <cstdint>
#include <span>

#include "shardcheck/arithmetic/tree.h"

namespace shardcheck {

/// sums[i] = sum over j of x[i*width + j]^2 for `rows` rows; chain inside a leaf, tree over leaves
/// (leaf 0: one chain).
void sum_of_squares(const float* x, std::int64_t rows, std::int64_t width, TreeShape shape, std::int64_t leaf,
                    float* sums);

/// y = x * (1 / sqrt(sums[i] / divisor + eps)) * weight, rows of `width`; two multiplications in this
/// order. `y` may be `x`.
void rms_scale(const float* x, std::int64_t rows, std::int64_t width, const float* sums, float divisor,
               float eps, const float* weight, float* y);

/// cos and sin of position * theta^(-2i/head_dim), tables of [positions, head_dim/2], positions ascending
/// from `first`. The frequency and the angle are each one f32 rounding (Hugging Face's convention).
void rope_tables(std::int64_t first, std::int64_t positions, std::int64_t head_dim, double theta,
                 float* cos_table, float* sin_table);

/// Rotary embedding in place on [rows, heads, head_dim], `stride` floats between rows; row i uses table
/// row position[i]. `half_split`: pairs (j, j + head_dim/2) as Hugging Face, else pairs (2j, 2j+1).
/// a' = fma(a, cos, -(b*sin)), b' = fma(b, cos, a*sin).
void apply_rope(float* x, std::int64_t rows, std::int64_t stride, std::int64_t heads, std::int64_t head_dim,
                const std::int32_t* position, const float* cos_table, const float* sin_table,
                bool half_split);

/// Causal attention of one sequence, heads of one rank. q [rows, heads*head_dim], k and v
/// [rows, kv_heads*head_dim] with the given row strides, out [rows, heads*head_dim].
/// Query head h reads KV head kv_of_head[h]. Scores are one chain over head_dim times 1/sqrt(head_dim);
/// the maximum is exact and taken first; sums over positions are chains inside blocks of `key_block`
/// absolute positions, combined by the tree over blocks (key_block 0: one chain); one division at the end.
/// `causal` false lets every position see every other.
struct AttentionShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  std::int64_t key_block = 0;
  TreeShape shape = TreeShape::halving;
  bool causal = true;
};
void attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
               std::span<const std::int64_t> kv_of_head, float* out);

/// out = silu(gate) * up, elementwise.
void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out);

/// x += y; and x[i][j] += bias[j].
void add_in_place(std::span<float> x, std::span<const float> y);
void add_bias(float* x, std::int64_t rows, std::int64_t width, std::int64_t stride, const float* bias);

}  // namespace shardcheck
