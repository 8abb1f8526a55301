// The rest of a forward pass: norms, rotary embedding, attention, activation. Each is a function of plain
// f32 arrays with a fixed order of operations; sums follow the leaf and tree of the contract, or one
// ascending chain when leaf is 0 (`native`).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/model/geometry.h"

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
/// [keys, kv_heads*head_dim] with the given row strides, out [rows, heads*head_dim].
/// Query head h reads KV head kv_of_head[h]. Scores are one chain over head_dim times 1/sqrt(head_dim), then
/// fma(slope, key position - query position, score); the maximum, of the sink too, is exact and taken first;
/// sums over positions are chains inside blocks of `key_block` absolute positions, combined by the tree over
/// blocks (key_block 0: one chain); exp(sink - maximum) is added to the root of the denominator; one division
/// at the end. `causal` false lets every query see every key.
struct AttentionShape {
  std::int64_t rows = 0;         // queries, at positions first_query, first_query + 1, ...
  std::int64_t first_query = 0;  // absolute
  std::int64_t keys = 0;         // held here, at positions first_key, first_key + 1, ...
  std::int64_t first_key = 0;    // absolute; 0 or a multiple of key_block
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  std::int64_t key_block = 0;
  std::int64_t block_offset = 0;  // blocks end at positions block_offset + n*key_block; 0 is right
  TreeShape shape = TreeShape::halving;
  bool causal = true;
  const float* slopes = nullptr;  // ALiBi: one per head; null: none
  const float* sinks = nullptr;   // one logit per head; null: none
};

/// Attention where every key a query sees is held here: first_key is 0. A query sees at least one.
void attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
               std::span<const std::int64_t> kv_of_head, float* out);

/// Attention over ranks that hold parts of the positions, step 1: maxima[h*rows + i] = the largest score that
/// query i of head h sees among the keys held here; -inf when it sees none. Sinks have no part in it.
std::vector<float> attention_maxima(const AttentionShape& shape, const float* q, const float* k,
                                    std::span<const std::int64_t> kv_of_head);

/// Step 2: for each head, for each query, the maximal nodes of the tree over the blocks that the query sees
/// that lie in the blocks held here, left to right; a node is head_dim numerators and a denominator, with
/// weights exp(score - maxima[h*rows + i]). key_block 0: one node where the query sees a key here.
std::vector<float> attention_nodes(const AttentionShape& shape, const float* q, const float* k,
                                   const float* v, std::span<const std::int64_t> kv_of_head,
                                   std::span<const float> maxima);

/// What one rank sent to the owner of the queries.
struct AttentionPart {
  std::int64_t first_key = 0, keys = 0;  // positions the rank holds
  std::span<const float> maxima;         // [heads, rows], that its weights are relative to
  std::span<const float> nodes;          // as `attention_nodes` gives them
};

/// Step 3: out from the parts of all ranks, positions ascending and without a gap. A part whose maximum is
/// below the largest is scaled by exp(its maximum - the largest), which is 1 where every rank was told the
/// maximum over ranks: then the bits are those of `attention`. Throws std::invalid_argument when a part has
/// another number of values than its positions ask for.
void complete_attention(const AttentionShape& shape, std::span<const AttentionPart> parts, float* out);

/// Slopes of ALiBi for `heads` heads, as its paper's code gives them: 2^(-8(h+1)/n) for a power of two n, and
/// between them for other numbers.
std::vector<float> alibi_slopes(std::int64_t heads);

/// out = act(x), elementwise: an MLP without a gate. `out` may be `x`. Throws std::invalid_argument for spans
/// of different lengths.
void activate(Activation activation, std::span<const float> x, std::span<float> out);
/// out = act(gate) * up, elementwise; `out` may be one of them. Throws as `activate`.
void activate_multiply(Activation activation, std::span<const float> gate, std::span<const float> up,
                       std::span<float> out);
/// The same with silu.
void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out);

/// x += y; and x[i][j] += bias[j].
void add_in_place(std::span<float> x, std::span<const float> y);
void add_bias(float* x, std::int64_t rows, std::int64_t width, std::int64_t stride, const float* bias);

}  // namespace shardcheck
