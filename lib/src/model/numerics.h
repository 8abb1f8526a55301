// How a model computes: one arithmetic and its contract, with the products and sums of a forward pass under
// it. ReferenceModel and ShardedModel share this and nothing that knows of layouts or ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck {

/// A row-major f32 matrix [rows, width].
struct Matrix {
  Matrix() = default;
  Matrix(std::int64_t row_count, std::int64_t row_width)
      : rows(row_count), width(row_width), values(static_cast<std::size_t>(row_count * row_width)) {}
  float* row(std::int64_t i) { return values.data() + i * width; }
  const float* row(std::int64_t i) const { return values.data() + i * width; }
  /// Rows [first, last).
  Matrix part(std::int64_t first, std::int64_t last) const {
    Matrix rows_only;
    rows_only.rows = last - first;
    rows_only.width = width;
    rows_only.values.assign(values.begin() + first * width, values.begin() + last * width);
    return rows_only;
  }

  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::vector<float> values;
};

/// The weights of a linear layer, packed for one arithmetic.
class LinearWeights {
 public:
  LinearWeights() = default;
  /// `tops`: of the rows, agreed over ranks (see ExactWeights); used under exact only.
  LinearWeights(const Tensor& weights, Arithmetic arithmetic, std::span<const std::int32_t> tops = {});
  /// For native and tree.
  explicit LinearWeights(PackedWeights packed) : packed_(std::move(packed)) {}

  bool is_exact() const noexcept { return exact_ != nullptr; }
  std::int64_t n() const noexcept { return exact_ ? exact_->n() : packed_.n(); }
  std::int64_t k() const noexcept { return exact_ ? exact_->k() : packed_.k(); }
  const PackedWeights& packed() const noexcept { return packed_; }
  const ExactWeights& exact() const noexcept { return *exact_; }

 private:
  PackedWeights packed_;
  std::unique_ptr<ExactWeights> exact_;
};

struct Numerics {
  Arithmetic arithmetic = Arithmetic::native;
  Contract contract;

  /// How a sum over all of k runs: one chain under native, leaves of `leaf` columns under tree.
  Reduction whole(std::int64_t k, std::int64_t leaf) const;

  /// Rounds to the storage dtype: what a layer hands to the next one.
  void store(Matrix& x) const;

  /// y[rows, n] = x W^T (+ bias when not empty), summed in leaves of `leaf`; f32, not yet stored.
  void product(const Matrix& x, const LinearWeights& weights, std::int64_t leaf, std::span<const float> bias,
               float* y) const;
  /// The same as a matrix, stored.
  Matrix linear(const Matrix& x, const LinearWeights& weights, std::int64_t leaf,
                std::span<const float> bias = {}) const;
};

/// x -= the mean of each row of d_model values: the sum as the arithmetic says, one division, one
/// subtraction.
void subtract_row_means(const Numerics& numerics, Matrix& x);

/// Tops of the rows of f32, bf16 or f16 weights [n, k]: see row_tops.
std::vector<std::int32_t> weight_tops(const Tensor& weights);

/// sums[i] = sum of squares of row i, in leaves of `leaf` columns under tree.
void sums_of_squares(Arithmetic arithmetic, TreeShape shape, std::int64_t leaf, const float* x,
                     std::int64_t rows, std::int64_t width, float* sums);

}  // namespace shardcheck
