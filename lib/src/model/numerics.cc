#include "model/numerics.h"

#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {
namespace {

template <float (*Widen)(std::uint16_t), std::uint16_t (*Narrow)(float)>
void round_through(std::span<float> values) {
  for (float& value : values) value = Widen(Narrow(value));
}

}  // namespace

LinearWeights::LinearWeights(const Tensor& weights, Arithmetic arithmetic,
                             std::span<const std::int32_t> tops) {
  if (arithmetic == Arithmetic::exact) {
    exact_ = std::make_unique<ExactWeights>(weights, tops);
  } else {
    packed_ = PackedWeights(weights);
  }
}

Reduction Numerics::whole(std::int64_t k, std::int64_t leaf) const {
  return arithmetic == Arithmetic::tree ? Reduction::whole(contract.shape, k, leaf) : Reduction::chain();
}

void Numerics::store(Matrix& x) const {
  if (contract.storage == DType::bf16) round_through<bf16_to_f32, f32_to_bf16>(x.values);
  if (contract.storage == DType::f16) round_through<f16_to_f32, f32_to_f16>(x.values);
}

void Numerics::product(const Matrix& x, const LinearWeights& weights, std::int64_t leaf,
                       std::span<const float> bias, float* y) const {
  const std::int64_t n = weights.n();
  if (weights.is_exact()) return exact_gemm(x.values.data(), x.width, x.rows, weights.exact(), y, n, bias);
  gemm(x.values.data(), x.width, x.rows, weights.packed(), whole(x.width, leaf), y, n);
  if (!bias.empty()) add_bias(y, x.rows, n, n, bias.data());
}

Matrix Numerics::linear(const Matrix& x, const LinearWeights& weights, std::int64_t leaf,
                        std::span<const float> bias) const {
  Matrix y(x.rows, weights.n());
  product(x, weights, leaf, bias, y.values.data());
  store(y);
  return y;
}

void subtract_row_means(const Numerics& numerics, Matrix& x) {
  const std::vector<float> ones(static_cast<std::size_t>(x.width), 1.0F);
  const LinearWeights sum(Tensor::from({1, x.width}, ones), numerics.arithmetic);
  std::vector<float> sums(static_cast<std::size_t>(x.rows));
  numerics.product(x, sum, numerics.contract.leaf_d_model, {}, sums.data());
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float mean = sums[static_cast<std::size_t>(i)] / static_cast<float>(x.width);
    for (std::int64_t j = 0; j < x.width; ++j) x.row(i)[j] -= mean;
  }
}

std::vector<std::int32_t> weight_tops(const Tensor& weights) {
  const Tensor wide = weights.to(DType::f32);
  return row_tops(wide.f32().data(), wide.dim(1), wide.dim(0), wide.dim(1));
}

void sums_of_squares(Arithmetic arithmetic, TreeShape shape, std::int64_t leaf, const float* x,
                     std::int64_t rows, std::int64_t width, float* sums) {
  if (arithmetic == Arithmetic::exact) return exact_sum_of_squares(x, rows, width, sums);
  sum_of_squares(x, rows, width, shape, arithmetic == Arithmetic::tree ? leaf : 0, sums);
}

}  // namespace shardcheck
