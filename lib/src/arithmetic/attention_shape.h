// What attention has in common wherever its keys are: who sees what, what its shapes must satisfy, and what
// becomes of weighted sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "shardcheck/arithmetic/attention.h"

namespace shardcheck {

/// Absolute positions [first, first + count) that a rank holds.
struct HeldKeys {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

/// What a query sees of the keys a rank holds, and where that lies in the query's tree.
struct SeenKeys {
  std::int64_t count = 0;            // the first so many of those held
  std::int64_t leaves = 0;           // of the tree over all blocks that the query sees
  std::int64_t first = 0, last = 0;  // the leaves that the keys make up; none without keys
};

/// Positions that query `row` sees of a sequence with `all_keys` keys.
inline std::int64_t positions_seen(const AttentionShape& shape, std::int64_t row, std::int64_t all_keys) {
  return shape.causal ? shape.first_query + row + 1 : all_keys;
}

SeenKeys seen_keys(const AttentionShape& shape, std::int64_t row, HeldKeys held, std::int64_t all_keys);

/// Positions of the first block that `held` lies in; `held.count` or more without blocks.
std::int64_t first_block_size(const AttentionShape& shape, HeldKeys held);

/// starts[i] = nodes of `held` in the trees of the queries before query i of a head; starts[rows]: in all of
/// them.
std::vector<std::int64_t> node_starts(const AttentionShape& shape, HeldKeys held, std::int64_t all_keys);

/// Floats of a node: head_dim numerators and a denominator.
inline std::int64_t node_width(const AttentionShape& shape) { return shape.head_dim + 1; }

/// Where [heads, rows] holds a query.
inline std::size_t query_index(const AttentionShape& shape, std::int64_t head, std::int64_t row) {
  return static_cast<std::size_t>(head * shape.rows + row);
}

/// The larger of a maximum and the sink of the head, if any; a NaN sink is passed over.
inline float with_sink(const AttentionShape& shape, std::int64_t head, float maximum) {
  return shape.sinks != nullptr && shape.sinks[head] > maximum ? shape.sinks[head] : maximum;
}

/// What weights are relative to: where every score is -inf they are all 0, not NaN.
inline float softmax_reference(float maximum) {
  return maximum == -std::numeric_limits<float>::infinity() ? 0.0F : maximum;
}

/// out = the numerators of `root` over its denominator, to which the sink is added.
void divide_by_denominator(const AttentionShape& shape, std::int64_t head, float maximum, const float* root,
                           float* out);

/// These throw std::invalid_argument, in a message that begins with `what`.
/// Unless no number of the shape is negative.
void require_counts(std::string_view what, const AttentionShape& shape);
/// Unless kv_of_head names one of the KV heads for each head; and require_counts.
void require_heads(std::string_view what, const AttentionShape& shape,
                   std::span<const std::int64_t> kv_of_head);
/// Unless the keys from position 0 on are held and every query sees at least one of them and no other.
void require_all_keys(std::string_view what, const AttentionShape& shape);
/// Unless `held` starts between two blocks, and ends there or where no query of `shape` sees more.
void require_whole_blocks(std::string_view what, const AttentionShape& shape, HeldKeys held,
                          std::int64_t all_keys);

/// Unless there is a maximum for each query of each head.
void require_maxima(std::string_view what, const AttentionShape& shape, std::span<const float> maxima);

}  // namespace shardcheck
