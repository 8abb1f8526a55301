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
