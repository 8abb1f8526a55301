// Pieces of a forward pass that act on plain arrays of one rank (or of the unsharded model): what
// ReferenceModel and ShardedModel are allowed to share, element functions and reductions, and nothing about
// layouts or ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/model/weights.h"

namespace shardcheck {

/// A row-major f32 matrix [rows, width].
struct Matrix {
  Matrix() = default;
  Matrix(std::int64_t row_count, std::int64_t row_width)
      : rows(row_count), width(row_width), values(static_cast<std::size_t>(row_count * row_width)) {}
  float* row(std::int64_t i) { return values.data() + i * width; }
  const float* row(std::int64_t i) const { return values.data() + i * width; }

  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::vector<float> values;
};

/// The sum over all of k: one chain under native, leaves of the contract's width under tree.
Reduction whole_reduction(Arithmetic arithmetic, const Contract& contract, std::int64_t k, std::int64_t leaf);

/// Values of a tensor as f32, whatever its storage dtype.
std::vector<float> widened(const Tensor& tensor);

/// y = x W^T (+ bias when not empty).
Matrix linear(const Matrix& x, const PackedWeights& weights, const Reduction& reduction,
              std::span<const float> bias = {});

/// RMSNorm over head_dim of every head, in place.
void normalize_heads(Matrix& x, std::int64_t head_dim, float eps, std::span<const float> weight);

/// Rotary tables and positions of a batch of equally long sequences.
class RotaryTables {
 public:
  RotaryTables(const Geometry& geometry, const Tokens& tokens);
  void apply(Matrix& x, std::int64_t head_dim, bool half_split) const;

 private:
  std::vector<float> cos_, sin_;
  std::vector<std::int32_t> positions_;
};

/// Attention of every sequence of a batch over the heads held here.
Matrix attend(const Geometry& geometry, Arithmetic arithmetic, const Contract& contract, const Tokens& tokens,
              const Matrix& q, const Matrix& k, const Matrix& v, std::span<const std::int64_t> kv_of_head,
              bool causal);

/// silu(gate) * up.
Matrix gated(const Matrix& gate, const Matrix& up);

/// Throws InvalidInput for an arithmetic this build has no reductions for.
void require_arithmetic(Arithmetic arithmetic);

/// Throws InvalidInput naming the position when a token is outside the vocabulary or the counts disagree.
void require_tokens_of(const Geometry& geometry, const Tokens& tokens);

}  // namespace shardcheck
