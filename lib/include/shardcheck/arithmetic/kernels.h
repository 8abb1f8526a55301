// The rest of a forward pass: norms, rotary embedding, activation, and attention (attention.h). Each is a
// function of plain f32 arrays with a fixed order of operations; sums follow the leaf and tree of the
// contract, or one ascending chain when leaf is 0 (`native`).
#pragma once

#include <cstdint>
#include <span>

#include "shardcheck/arithmetic/attention.h"  // part of this header
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
