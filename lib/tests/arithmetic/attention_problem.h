// Random attention, and its definition in scalar arithmetic written from the rule alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "scalar_oracle.h"
#include "shardcheck/arithmetic/attention.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck::oracle {

using Floats = std::vector<float>;

inline std::size_t index_of(std::int64_t index) { return static_cast<std::size_t>(index); }

/// One sequence: q [rows, heads*head_dim], k and v [keys, kv_heads*head_dim], rows with a gap behind them.
struct AttentionProblem {
  AttentionProblem(Stream& stream, std::int64_t rows, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t head_dim) {
    shape = {.rows = rows, .keys = rows, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
    shape.q_stride = heads * head_dim + 1;
    shape.k_stride = kv_heads * head_dim + 2;
    shape.v_stride = kv_heads * head_dim + 3;
    shape.out_stride = heads * head_dim;
    q = random_values(stream, rows * shape.q_stride);
    k = random_values(stream, rows * shape.k_stride);
    v = random_values(stream, rows * shape.v_stride);
    for (std::int64_t h = 0; h < heads; ++h) kv_of_head.push_back(h * kv_heads / heads);
  }

  static AttentionProblem draw(Stream& stream) {
    const std::int64_t kv_heads = stream.integer(1, 3), heads = kv_heads * stream.integer(1, 3);
    AttentionProblem problem(stream, stream.integer(1, 40), heads, kv_heads, stream.integer(1, 40));
    problem.shape.key_block = stream.integer(0, 12);
    problem.shape.shape = stream.chance(1, 2) ? TreeShape::halving : TreeShape::linear;
    problem.shape.causal = stream.chance(2, 3);
    return problem;
  }

  /// ALiBi or sinks, or both.
  void add_biases(Stream& stream) {
    const std::int64_t which = stream.integer(1, 3);
    slopes = random_values(stream, shape.heads);
    sinks = random_values(stream, shape.heads);
    // Some sinks above every score.
    for (float& sink : sinks) sink *= stream.chance(1, 3) ? 30.0F : 1.0F;
    if (which != 2) shape.slopes = slopes.data();
    if (which != 1) shape.sinks = sinks.data();
  }

  Floats run() const {
    Floats out(index_of(shape.rows * shape.out_stride));
    attention(shape, q.data(), k.data(), v.data(), kv_of_head, out.data());
    return out;
  }

  /// Queries [first, first + rows) alone, over the keys up to theirs where causal and all keys where not.
  Floats run_chunk(std::int64_t first, std::int64_t rows) const {
    const AttentionShape chunk = chunk_shape(first, rows);
    Floats out(index_of(rows * shape.out_stride));
    attention(chunk, q.data() + first * shape.q_stride, k.data(), v.data(), kv_of_head, out.data());
    return out;
  }

  AttentionShape chunk_shape(std::int64_t first, std::int64_t rows) const {
    AttentionShape chunk = shape;
    chunk.rows = rows;
    chunk.first_query = shape.first_query + first;
    chunk.keys = shape.causal ? chunk.first_query + rows : shape.keys;
    return chunk;
  }

  Floats expected() const {
    Floats out(index_of(shape.rows * shape.out_stride));
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h)
        expect_row(i, h, &out[index_of(i * shape.out_stride + h * shape.head_dim)]);
    }
    return out;
  }

  void expect_row(std::int64_t i, std::int64_t h, float* out) const {
    const std::int64_t d = shape.head_dim, kv = kv_of_head[index_of(h)] * d;
    const std::int64_t position = shape.first_query + i, seen = shape.causal ? position + 1 : shape.keys;
    Floats p;
    for (std::int64_t j = 0; j < seen; ++j) {
      const float score = dot(
          TreeShape::halving, d, 0,
          [&](std::int64_t c) { return q[index_of(i * shape.q_stride + h * d + c)]; },
          [&](std::int64_t c) { return k[index_of(j * shape.k_stride + kv + c)]; });
      p.push_back(score * (1.0F / std::sqrt(static_cast<float>(d))));
      if (shape.slopes != nullptr) {
        p.back() = std::fma(shape.slopes[h], static_cast<float>(j - position), p.back());
      }
    }
    float top = *std::max_element(p.begin(), p.end());
    if (shape.sinks != nullptr) top = std::max(top, shape.sinks[h]);
    for (float& value : p) value = exp_f32(value - top);
    const auto weight = [&](std::int64_t j) { return p[index_of(j)]; };
    const auto one = [](std::int64_t) { return 1.0F; };
    float denominator = sum(seen, weight, one);
    if (shape.sinks != nullptr) denominator += exp_f32(shape.sinks[h] - top);
    for (std::int64_t c = 0; c < d; ++c) {
      const auto value = [&](std::int64_t j) { return v[index_of(j * shape.v_stride + kv + c)]; };
      out[c] = sum(seen, weight, value) / denominator;
    }
  }

  /// Column c of the output, from the formula alone.
  double formula(std::int64_t i, std::int64_t h, std::int64_t c) const {
    const std::int64_t d = shape.head_dim, kv = kv_of_head[index_of(h)] * d;
    const std::int64_t position = shape.first_query + i, seen = shape.causal ? position + 1 : shape.keys;
    double numerator = 0.0, denominator = shape.sinks == nullptr ? 0.0 : std::exp(double{shape.sinks[h]});
    for (std::int64_t j = 0; j < seen; ++j) {
      double score = 0.0;
      for (std::int64_t e = 0; e < d; ++e) {
        score +=
            double{q[index_of(i * shape.q_stride + h * d + e)]} * k[index_of(j * shape.k_stride + kv + e)];
      }
      score /= std::sqrt(static_cast<double>(d));
      if (shape.slopes != nullptr) score += double{shape.slopes[h]} * static_cast<double>(j - position);
      numerator += std::exp(score) * v[index_of(j * shape.v_stride + kv + c)];
      denominator += std::exp(score);
    }
    return numerator / denominator;
  }

  /// Over the positions seen, the first block ending at block_offset unless that is a whole block.
  template <typename A, typename B>
  float sum(std::int64_t seen, const A& a, const B& b) const {
    const std::int64_t block = shape.key_block, rest = block == 0 ? 0 : shape.block_offset % block;
    if (rest == 0) return dot(shape.shape, seen, block, a, b);
    const std::int64_t missing = block - rest;
    return root(shape.shape, 0, (seen + missing + block - 1) / block, [&](std::int64_t l) {
      float chain = 0.0F;
      const std::int64_t begin = std::max(l * block - missing, std::int64_t{0});
      const std::int64_t end = std::min(seen, (l + 1) * block - missing);
      for (std::int64_t i = begin; i < end; ++i) chain = std::fma(a(i), b(i), chain);
      return chain;
    });
  }

  AttentionShape shape;
  Floats q, k, v, slopes, sinks;
  std::vector<std::int64_t> kv_of_head;
};

}  // namespace shardcheck::oracle
