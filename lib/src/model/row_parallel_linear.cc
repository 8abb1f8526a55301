#include "shardcheck/model/row_parallel_linear.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "model/row_parallel.h"

namespace shardcheck {
namespace {

void require_cuts(std::span<const std::int64_t> cuts, std::int64_t k, int degree) {
  const bool right = std::ssize(cuts) == degree + 1 && cuts.front() == 0 && cuts.back() == k &&
                     std::is_sorted(cuts.begin(), cuts.end());
  if (!right)
    throw std::invalid_argument(fmt::format(
        "row-parallel linear: cuts {} are not {} ascending boundaries from 0 to {}", cuts, degree + 1, k));
}

Matrix columns_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
  Matrix part(x.dim(0), end - begin);
  const float* values = x.f32().data();
  for (std::int64_t i = 0; i < part.rows; ++i)
    std::copy_n(values + i * x.dim(1) + begin, part.width, part.row(i));
  return part;
}

Tensor columns_of_weights(const Tensor& weights, std::int64_t begin, std::int64_t end) {
  const Matrix part = columns_of(weights.to(DType::f32), begin, end);
  return Tensor::from({part.rows, part.width}, part.values);
}

std::vector<LinearWeights> weights_of_ranks(const RowParallelLinear& layer,
                                            std::span<const std::int64_t> cuts, std::span<const int> ranks) {
  std::vector<LinearWeights> all;
  const bool exact = layer.arithmetic == Arithmetic::exact;
  const auto tops = exact ? weight_tops(layer.weights) : std::vector<std::int32_t>{};
  const PackedWeights whole = exact ? PackedWeights() : PackedWeights(layer.weights);
  for (const int rank : ranks) {
    const std::int64_t begin = cuts[static_cast<std::size_t>(rank)];
    const std::int64_t end = cuts[static_cast<std::size_t>(rank) + 1];
    if (exact) {
      all.emplace_back(columns_of_weights(layer.weights, begin, end), layer.arithmetic, tops);
    } else {
      all.emplace_back(whole.columns(begin, end));
    }
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> even_cuts(std::int64_t k, int degree) {
  std::vector<std::int64_t> cuts;
  for (int rank = 0; rank <= degree; ++rank) cuts.push_back(k / degree * rank);
  return cuts;
}

std::vector<std::int64_t> leaf_cuts(std::int64_t k, std::int64_t leaf, int degree) {
  const std::int64_t leaves = (k + leaf - 1) / leaf;
  std::vector<std::int64_t> cuts = {0};
  for (int rank = 0; rank < degree; ++rank) {
    const std::int64_t own = leaves / degree + (rank < leaves % degree ? 1 : 0);
    cuts.push_back(std::min(k, cuts.back() + own * leaf));
  }
  return cuts;
}

std::vector<Tensor> run(const RowParallelLinear& layer, std::span<const std::int64_t> cuts,
                        Collective& collective, const ForwardSteps& steps, CoverExchange exchange) {
  const std::int64_t k = layer.x.dim(1);
  require_cuts(cuts, k, collective.degree());
  Geometry geometry;
  geometry.d_model = layer.weights.dim(0);
  geometry.ffn = k;
  Numerics numerics{layer.arithmetic, {}};
  numerics.contract.shape = layer.shape;
  numerics.contract.leaf_ffn = layer.leaf;
  numerics.contract.storage = layer.storage;
  const auto weights = weights_of_ranks(layer, cuts, collective.local_ranks());
  std::vector<RowParallelPart> parts;
  RankMatrices xs;
  for (std::size_t slot = 0; slot < weights.size(); ++slot) {
    const int rank = collective.local_ranks()[slot];
    parts.push_back({rank, weights[slot], {}});
    xs.push_back(
        columns_of(layer.x, cuts[static_cast<std::size_t>(rank)], cuts[static_cast<std::size_t>(rank) + 1]));
  }
  const RowParallelSum sum(geometry, numerics, consumer_named("seed"), collective, steps, exchange);
  std::vector<Tensor> outputs;
  for (const Matrix& y : sum({"down", 0, {cuts.begin(), cuts.end()}, layer.leaf}, parts, xs))
    outputs.push_back(Tensor::from({y.rows, y.width}, y.values));
  return outputs;
}

}  // namespace shardcheck
