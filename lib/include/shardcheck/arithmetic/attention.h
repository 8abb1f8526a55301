// Attention over cached keys and over ranks that hold parts of the key positions. What a query gets depends
// on absolute positions alone: not on which other queries are computed with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/tree.h"

namespace shardcheck {

/// One sequence, the heads of one rank. q [rows, heads*head_dim], k and v [keys, kv_heads*head_dim], out
/// [rows, heads*head_dim], with the given row strides. Query head h reads KV head kv_of_head[h].
/// A score is one chain over head_dim, times 1/sqrt(head_dim), then fma(slope, key position - query position,
/// score). Weights are exp(score - maximum), the maximum, of the sink too, being exact and taken first. Sums
/// over positions are chains inside blocks of `key_block` absolute positions, combined by the tree over the
/// blocks that the query sees (key_block 0: one chain). exp(sink - maximum) is added to the root of the
/// denominator; one division at the end.
struct AttentionShape {
  std::int64_t rows = 0;         // queries, at positions first_query, first_query + 1, ...
  std::int64_t first_query = 0;  // absolute
  std::int64_t keys = 0;         // held here, at positions first_key, first_key + 1, ...
  std::int64_t first_key = 0;    // absolute; 0 or the start of a block
  std::int64_t all_keys = 0;     // on all ranks, read only where not causal; 0: first_key + keys
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  std::int64_t key_block = 0;
  std::int64_t block_offset = 0;  // blocks end at positions block_offset + n*key_block; 0 is right
  TreeShape shape = TreeShape::halving;
  bool causal = true;             // a query sees the keys up to its own position; else all of them
  const float* slopes = nullptr;  // ALiBi: one per head; null: none
  const float* sinks = nullptr;   // one logit per head; null: none
};

/// Attention where every key a query sees is held here. Throws std::invalid_argument for a first_key other
/// than 0, for fewer keys than a query sees (at least one), for a negative number of anything, and for
/// kv_of_head that does not name one of the KV heads for each head.
void attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
               std::span<const std::int64_t> kv_of_head, float* out);

/// Attention over ranks that hold parts of the positions, step 1: maxima[h*rows + i] = the largest score, of
/// those that are not NaN, that query i of head h sees among the keys held here; -inf when there is none.
/// Sinks have no part in it. Throws std::invalid_argument as `attention`, and unless the keys held start
/// and, where a query sees keys beyond them, end between two blocks.
std::vector<float> attention_maxima(const AttentionShape& shape, const float* q, const float* k,
                                    std::span<const std::int64_t> kv_of_head);

/// Step 2: for each head, for each query, the maximal nodes of the tree over the blocks that the query sees
/// that lie in the blocks held here, left to right (`cover` in tree.h). A node is head_dim numerators and a
/// denominator, with weights exp(score - maxima[h*rows + i]), whether that is the maximum of this rank, of
/// all ranks, or of all ranks and the sink. key_block 0: one node where the query sees a key here. Throws
/// std::invalid_argument as step 1, and for another number of maxima.
std::vector<float> attention_nodes(const AttentionShape& shape, const float* q, const float* k,
                                   const float* v, std::span<const std::int64_t> kv_of_head,
                                   std::span<const float> maxima);

/// What one rank sent to the owner of the queries.
struct AttentionPart {
  std::int64_t first_key = 0, keys = 0;  // positions the rank holds
  std::span<const float> maxima;         // [heads, rows], that its weights are relative to
  std::span<const float> nodes;          // as `attention_nodes` gives them
};

/// Step 3: out from the parts of all ranks, positions ascending from 0 and without a gap (a rank without keys
/// may stand anywhere); of the shape, the keys held, k and v are not read. With M the largest of the sink and
/// of the maxima of the parts in which the query sees a key, a part whose maximum is below M is first scaled
/// by exp(its maximum - M); then the tree is completed, or, key_block 0, the parts are added in their order.
/// Where all parts were told M, the sink included, nothing is scaled and, with blocks, the bits are those of
/// `attention`. Throws std::invalid_argument for a gap, for keys that are missing, for parts not cut between
/// blocks, and for another number of values than the positions of a part ask for.
void complete_attention(const AttentionShape& shape, std::span<const AttentionPart> parts, float* out);

/// Slopes of ALiBi for `heads` heads, as its paper's code gives them: 2^(-8(h+1)/n) for a power of two n; for
/// other numbers the slopes of the power of two below, then every second slope of the power of two above.
/// Throws std::invalid_argument for a negative number.
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace shardcheck
