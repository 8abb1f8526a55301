#include "shardcheck/arithmetic/attention.h"

#include <algorithm>
#include <limits>

#include "arithmetic/attention_calls.h"
#include "arithmetic/attention_shape.h"
#include "arithmetic/kernel_calls.h"
#include "arithmetic/leaf_plan.h"
#include "arithmetic/scratch.h"
#include "shardcheck/arithmetic/functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic/attention-inl.h"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h: the kernels for the static target.
#include "arithmetic/attention-inl.h"

namespace shardcheck {

HWY_EXPORT(ScoreRow);
HWY_EXPORT(AddSlope);
HWY_EXPORT(WeighValues);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void pack_keys(const float* k, std::int64_t stride, AttentionTile& tile) {
  // A vector of positions at a time, whose rows then stay in the cache.
  for (std::int64_t first = 0; first < tile.padded_positions; first += kMaxLanes) {
    const std::int64_t held = std::min(kMaxLanes, tile.positions - first);
    for (std::int64_t j = 0; j < tile.head_dim; ++j) {
      float* row = tile.keys + j * tile.padded_positions + first;
      for (std::int64_t p = 0; p < held; ++p) row[p] = k[(first + p) * stride + j];
      std::fill(row + held, row + kMaxLanes, 0.0F);
    }
  }
}

void pack_values(const float* v, std::int64_t stride, AttentionTile& tile) {
  for (std::int64_t p = 0; p < tile.positions; ++p) {
    float* row = tile.values + p * tile.value_width;
    std::copy_n(v + p * stride, tile.head_dim, row);
    row[tile.head_dim] = 1.0F;
    std::fill(row + tile.head_dim + 1, row + tile.value_width, 0.0F);
  }
}

HeldKeys held_keys(const AttentionShape& shape) { return {shape.first_key, shape.keys}; }

std::int64_t all_keys(const AttentionShape& shape) {
  return std::max(shape.all_keys, shape.first_key + shape.keys);
}

// Of the values that are not NaN.
float largest(std::span<const float> values) {
  float top = -kInfinity;
  for (const float value : values) top = value > top ? value : top;
  return top;
}

// One query of one head that sees a key held here.
struct Query {
  std::int64_t head, row;
  SeenKeys seen;
  std::span<float> scores;  // of the keys seen
};

// Working arrays of one call, shared by its KV heads one after the other.
class AttentionRun {
 public:
  explicit AttentionRun(const AttentionShape& shape) : shape_(shape) {
    thread_local Scratch scratch;
    const HeldKeys held = held_keys(shape);
    const std::int64_t positions = seen_keys(shape, shape.rows - 1, held, all_keys(shape)).count;
    const std::int64_t padded = padded_to_lanes(positions), width = padded_to_lanes(shape.head_dim + 1);
    const std::int64_t first_block = first_block_size(shape, held);
    float* memory = scratch.floats(shape.head_dim * padded + positions * width + padded);
    tile_ = {.positions = positions,
             .padded_positions = padded,
             .head_dim = shape.head_dim,
             .first_block = first_block,
             .key_block = shape.key_block == 0 ? first_block : shape.key_block,
             .scale = rsqrt_f32(static_cast<float>(shape.head_dim)),
             .keys = memory,
             .values = memory + shape.head_dim * padded,
             .value_width = width,
             .stack = nullptr};
    scores_ = tile_.values + positions * width;
  }

  std::int64_t node_stride() const { return tile_.value_width; }

  /// visit(query) for each that sees a key held here; heads of one KV head one after the other. `v` may be
  /// null for a visit that does not weigh.
  template <typename Visit>
  void each_query(const float* q, const float* k, const float* v, std::span<const std::int64_t> kv_of_head,
                  const Visit& visit) {
    for (std::int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
      bool packed = false;
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        if (kv_of_head[static_cast<std::size_t>(h)] != kv) continue;
        if (!packed) pack(k + kv * shape_.head_dim, v == nullptr ? v : v + kv * shape_.head_dim);
        packed = true;
        each_row(q, h, visit);
      }
    }
  }

  /// The nodes of a query left to right, `node_stride` floats apart, each head_dim numerators and a
  /// denominator, until the next call. Replaces the scores by weights.
  const float* weigh(const Query& query, float maximum) {
    thread_local Scratch stack;
    const float reference = softmax_reference(maximum);
    for (float& score : query.scores) score -= reference;
    exp_f32(query.scores, query.scores);
    const SeenKeys& seen = query.seen;
    const MergeSchedule& schedule = kept_schedule(shape_.shape, seen.leaves, seen.first, seen.last);
    tile_.stack = stack.floats(schedule.stack_depth * tile_.value_width);
    HWY_DYNAMIC_DISPATCH(WeighValues)(query.scores.data(), tile_, seen.count, schedule);
    return tile_.stack;
  }

 private:
  void pack(const float* k, const float* v) {
    pack_keys(k, shape_.k_stride, tile_);
    if (v != nullptr) pack_values(v, shape_.v_stride, tile_);
  }

  template <typename Visit>
  void each_row(const float* q, std::int64_t head, const Visit& visit) {
    for (std::int64_t i = 0; i < shape_.rows; ++i) {
      const SeenKeys seen = seen_keys(shape_, i, held_keys(shape_), all_keys(shape_));
      if (seen.count == 0) continue;
      score(q + i * shape_.q_stride + head * shape_.head_dim, head, i, seen.count);
      visit(Query{head, i, seen, {scores_, static_cast<std::size_t>(seen.count)}});
    }
  }

  void score(const float* q, std::int64_t head, std::int64_t row, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(ScoreRow)(q, tile_, count, scores_);
    if (shape_.slopes == nullptr) return;
    const std::int64_t distance = shape_.first_key - (shape_.first_query + row);
    HWY_DYNAMIC_DISPATCH(AddSlope)(shape_.slopes[head], distance, count, scores_);
  }

  const AttentionShape& shape_;
  AttentionTile tile_;
  float* scores_;
};

void require_part(const AttentionShape& shape, std::span<const std::int64_t> kv_of_head) {
  require_heads("attention", shape, kv_of_head);
  require_whole_blocks("attention", shape, held_keys(shape), all_keys(shape));
}

bool is_empty(const AttentionShape& shape) {
  return shape.rows == 0 || shape.keys == 0 || shape.heads == 0 || shape.head_dim == 0;
}

}  // namespace

void attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
               std::span<const std::int64_t> kv_of_head, float* out) {
  require_heads("attention", shape, kv_of_head);
  require_all_keys("attention", shape);
  if (is_empty(shape)) return;
  AttentionRun run(shape);
  run.each_query(q, k, v, kv_of_head, [&](const Query& query) {
    const float maximum = with_sink(shape, query.head, largest(query.scores));
    const float* root = run.weigh(query, maximum);
    float* row = out + query.row * shape.out_stride + query.head * shape.head_dim;
    divide_by_denominator(shape, query.head, maximum, root, row);
  });
}

std::vector<float> attention_maxima(const AttentionShape& shape, const float* q, const float* k,
                                    std::span<const std::int64_t> kv_of_head) {
  require_part(shape, kv_of_head);
  std::vector<float> maxima(static_cast<std::size_t>(shape.heads * shape.rows), -kInfinity);
  if (is_empty(shape)) return maxima;
  AttentionRun run(shape);
  run.each_query(q, k, nullptr, kv_of_head, [&](const Query& query) {
    maxima[query_index(shape, query.head, query.row)] = largest(query.scores);
  });
  return maxima;
}

std::vector<float> attention_nodes(const AttentionShape& shape, const float* q, const float* k,
                                   const float* v, std::span<const std::int64_t> kv_of_head,
                                   std::span<const float> maxima) {
  require_part(shape, kv_of_head);
  require_maxima("attention", shape, maxima);
  if (is_empty(shape)) return {};
  const std::vector<std::int64_t> starts = node_starts(shape, held_keys(shape), all_keys(shape));
  const std::int64_t width = node_width(shape);
  std::vector<float> nodes(static_cast<std::size_t>(shape.heads * starts.back() * width));
  AttentionRun run(shape);
  run.each_query(q, k, v, kv_of_head, [&](const Query& query) {
    const float* node = run.weigh(query, maxima[query_index(shape, query.head, query.row)]);
    const std::int64_t before = query.head * starts.back();
    const auto row = static_cast<std::size_t>(query.row);
    for (std::int64_t n = starts[row]; n < starts[row + 1]; ++n, node += run.node_stride()) {
      std::copy_n(node, width, nodes.data() + (before + n) * width);
    }
  });
  return nodes;
}

}  // namespace shardcheck
