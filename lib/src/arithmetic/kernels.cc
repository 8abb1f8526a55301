#include "shardcheck/arithmetic/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "arithmetic/ceil_div.h"
#include "arithmetic/kernel_calls.h"
#include "arithmetic/leaf_plan.h"
#include "arithmetic/scratch.h"
#include "shardcheck/arithmetic/functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic/kernels-inl.h"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h: the kernels for the static target.
#include "arithmetic/kernels-inl.h"

namespace shardcheck {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(RotateHalves);
HWY_EXPORT(ScoreRow);
HWY_EXPORT(WeighValues);

namespace {

// Rotates pairs (2j, 2j+1) by way of two dense halves.
void rotate_interleaved(float* head, const float* cosine, const float* sine, std::int64_t half,
                        float* halves) {
  for (std::int64_t j = 0; j < half; ++j) {
    halves[j] = head[2 * j];
    halves[half + j] = head[2 * j + 1];
  }
  HWY_DYNAMIC_DISPATCH(RotateHalves)(halves, halves + half, cosine, sine, half);
  for (std::int64_t j = 0; j < half; ++j) {
    head[2 * j] = halves[j];
    head[2 * j + 1] = halves[half + j];
  }
}

void require_attention(const AttentionShape& shape, std::span<const std::int64_t> kv_of_head) {
  if (std::ssize(kv_of_head) != shape.heads) {
    throw std::invalid_argument(
        fmt::format("attention: kv_of_head names {} heads, heads={}", kv_of_head.size(), shape.heads));
  }
  if (shape.key_block < 0) {
    throw std::invalid_argument(fmt::format("attention: key_block={} is negative", shape.key_block));
  }
  for (const std::int64_t kv : kv_of_head) {
    if (kv < 0 || kv >= shape.kv_heads) {
      throw std::invalid_argument(
          fmt::format("attention: kv_of_head holds {}; allowed 0..{}", kv, shape.kv_heads - 1));
    }
  }
}

void pack_keys(const float* k, std::int64_t stride, AttentionTile& tile) {
  for (std::int64_t j = 0; j < tile.head_dim; ++j) {
    float* row = tile.keys + j * tile.padded_positions;
    for (std::int64_t p = 0; p < tile.positions; ++p) row[p] = k[p * stride + j];
    std::fill(row + tile.positions, row + tile.padded_positions, 0.0F);
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

// One query row: scores, exact maximum, exponentials, weighted sums, one division.
void attend_row(const float* q, const AttentionTile& tile, const MergeSchedule& schedule, std::int64_t seen,
                std::span<float> scores, float* out) {
  HWY_DYNAMIC_DISPATCH(ScoreRow)(q, tile, seen, scores.data());
  const std::span<float> weights = scores.first(static_cast<std::size_t>(seen));
  const float top = *std::max_element(weights.begin(), weights.end());
  for (float& score : weights) score -= top;
  exp_f32(weights, weights);
  HWY_DYNAMIC_DISPATCH(WeighValues)(weights.data(), tile, seen, schedule);
  const float denominator = tile.stack[tile.head_dim];
  for (std::int64_t j = 0; j < tile.head_dim; ++j) out[j] = tile.stack[j] / denominator;
}

// Working arrays of one attention call, shared by its KV heads one after the other.
class AttentionRun {
 public:
  explicit AttentionRun(const AttentionShape& shape) : shape_(shape) {
    thread_local Scratch scratch;
    const std::int64_t block = shape.key_block == 0 ? shape.rows : shape.key_block;
    const std::int64_t padded = padded_to_lanes(shape.rows), width = padded_to_lanes(shape.head_dim + 1);
    const std::int64_t depth = whole_schedule(shape.shape, ceil_div(shape.rows, block)).stack_depth + 1;
    float* memory = scratch.floats(shape.head_dim * padded + shape.rows * width + depth * width + padded);
    tile_ = {.positions = shape.rows,
             .padded_positions = padded,
             .head_dim = shape.head_dim,
             .key_block = block,
             .scale = rsqrt_f32(static_cast<float>(shape.head_dim)),
             .keys = memory,
             .values = memory + shape.head_dim * padded,
             .value_width = width,
             .stack = memory + shape.head_dim * padded + shape.rows * width};
    scores_ = {tile_.stack + depth * width, static_cast<std::size_t>(padded)};
  }

  void pack(const float* k, const float* v) {
    pack_keys(k, shape_.k_stride, tile_);
    pack_values(v, shape_.v_stride, tile_);
  }

  void attend_head(const float* q, float* out) {
    for (std::int64_t i = 0; i < shape_.rows; ++i) {
      const std::int64_t seen = shape_.causal ? i + 1 : shape_.rows;
      const MergeSchedule& schedule = whole_schedule(shape_.shape, ceil_div(seen, tile_.key_block));
      attend_row(q + i * shape_.q_stride, tile_, schedule, seen, scores_, out + i * shape_.out_stride);
    }
  }

 private:
  const AttentionShape& shape_;
  AttentionTile tile_;
  std::span<float> scores_;
};

}  // namespace

void sum_of_squares(const float* x, std::int64_t rows, std::int64_t width, TreeShape shape, std::int64_t leaf,
                    float* sums) {
  if (leaf < 0) throw std::invalid_argument(fmt::format("sum of squares: leaf={} is negative", leaf));
  if (width == 0) {
    std::fill_n(sums, rows, 0.0F);
    return;
  }
  thread_local Scratch scratch;
  const std::int64_t leaf_width = leaf == 0 ? width : leaf;
  const MergeSchedule& schedule = whole_schedule(shape, ceil_div(width, leaf_width));
  const SumOfSquaresCall call{.x = x,
                              .rows = rows,
                              .width = width,
                              .leaf = leaf_width,
                              .schedule = &schedule,
                              .stack = scratch.floats(schedule.stack_depth * kMaxLanes),
                              .sums = sums};
  HWY_DYNAMIC_DISPATCH(SumOfSquares)(call);
}

void rms_scale(const float* x, std::int64_t rows, std::int64_t width, const float* sums, float divisor,
               float eps, const float* weight, float* y) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float scale = rsqrt_f32(sums[i] / divisor + eps);
    for (std::int64_t j = 0; j < width; ++j) y[i * width + j] = (x[i * width + j] * scale) * weight[j];
  }
}

void rope_tables(std::int64_t first, std::int64_t positions, std::int64_t head_dim, double theta,
                 float* cos_table, float* sin_table) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> angles(static_cast<std::size_t>(positions * half));
  for (std::int64_t j = 0; j < half; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(head_dim);
    const float frequency = pow_f32(static_cast<float>(theta), exponent);
    for (std::int64_t p = 0; p < positions; ++p) {
      angles[static_cast<std::size_t>(p * half + j)] = static_cast<float>(first + p) * frequency;
    }
  }
  cos_f32(angles, {cos_table, angles.size()});
  sin_f32(angles, {sin_table, angles.size()});
}

void apply_rope(float* x, std::int64_t rows, std::int64_t stride, std::int64_t heads, std::int64_t head_dim,
                const std::int32_t* position, const float* cos_table, const float* sin_table,
                bool half_split) {
  thread_local Scratch scratch;
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* cosine = cos_table + position[i] * half;
    const float* sine = sin_table + position[i] * half;
    for (std::int64_t h = 0; h < heads; ++h) {
      float* head = x + i * stride + h * head_dim;
      if (half_split) {
        HWY_DYNAMIC_DISPATCH(RotateHalves)(head, head + half, cosine, sine, half);
      } else {
        rotate_interleaved(head, cosine, sine, half, scratch.floats(2 * half));
      }
    }
  }
}

void attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
               std::span<const std::int64_t> kv_of_head, float* out) {
  require_attention(shape, kv_of_head);
  if (shape.rows == 0 || shape.heads == 0 || shape.head_dim == 0) return;
  AttentionRun run(shape);
  for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
    bool packed = false;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      if (kv_of_head[static_cast<std::size_t>(h)] != kv) continue;
      if (!packed) run.pack(k + kv * shape.head_dim, v + kv * shape.head_dim);
      packed = true;
      run.attend_head(q + h * shape.head_dim, out + h * shape.head_dim);
    }
  }
}

void add_in_place(std::span<float> x, std::span<const float> y) {
  if (x.size() != y.size()) {
    throw std::invalid_argument(
        fmt::format("add_in_place: x has {} values, y {}; they must agree", x.size(), y.size()));
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void add_bias(float* x, std::int64_t rows, std::int64_t width, std::int64_t stride, const float* bias) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) x[i * stride + j] += bias[j];
  }
}

}  // namespace shardcheck
