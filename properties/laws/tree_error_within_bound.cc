#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "law_support.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/model/row_parallel_linear.h"

namespace shardcheck::laws {
namespace {

constexpr std::int64_t kRows = 4;
constexpr double kUnitRoundoff = 0x1p-24;  // of f32

/// Inputs of a row-parallel layer of the case, rounded to its dtype.
RowParallelLinear layer_of(const Case& c, const Workbench& bench) {
  RowParallelLinear layer;
  layer.weights = bench.weights().at("layers.0.down");
  Tensor x = Tensor::uninitialized(DType::f32, {kRows, c.geometry.ffn});
  fill_normal(x.mutable_f32(), stream_key(c.seed, "row-parallel input"), 0.0F, 1.0F);
  layer.x = x.to(c.dtype).to(DType::f32);
  layer.shape = c.tree_shape;
  layer.leaf = bench.contract().leaf_ffn;
  return layer;
}

/// Additions that one product meets on its way to the root: its leaf's chain, then the height of the tree.
double depth_of(const RowParallelLinear& layer) {
  const std::int64_t k = layer.x.dim(1), leaves = (k + layer.leaf - 1) / layer.leaf;
  const auto height = layer.shape == TreeShape::linear
                          ? leaves
                          : static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(leaves)));
  return static_cast<double>(std::min(layer.leaf, k) + height);
}

/// sum over k of |x| |w| for every output: what the rounding errors of a sum are relative to.
std::vector<double> magnitudes(const RowParallelLinear& layer) {
  const Tensor wide = layer.weights.to(DType::f32);
  const std::int64_t k = layer.x.dim(1), n = wide.dim(0);
  std::vector<double> sums;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::int64_t c = 0; c < k; ++c) {
        sum += std::fabs(static_cast<double>(layer.x.f32()[static_cast<std::size_t>(i * k + c)]) *
                         wide.f32()[static_cast<std::size_t>(j * k + c)]);
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const RowParallelLinear layer = layer_of(c, bench);
  const int degree = c.target.tp_degree();
  const auto collective = subject.collective(degree);
  const Tensor tree = run(layer, even_cuts(c.geometry.ffn, degree), *collective, subject.steps()).front();
  std::vector<float> exact(static_cast<std::size_t>(tree.elements()));
  exact_gemm(layer.x.f32().data(), layer.x.dim(1), kRows, ExactWeights(layer.weights), exact.data(),
             tree.dim(1));
  const std::vector<double> magnitude = magnitudes(layer);
  // gamma_n of the running error analysis (Higham, section 3.1), and one rounding of the exact value.
  const double steps = depth_of(layer) + 1.0, gamma = steps * kUnitRoundoff / (1.0 - steps * kUnitRoundoff);
  Outcome outcome = Outcome::pass();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::fabs(static_cast<double>(tree.f32()[i]) - exact[i]);
    const double bound = gamma * magnitude[i] + steps * 0x1p-149;
    outcome.deviation = std::max(outcome.deviation, error);
    if (error <= bound) continue;
    Difference d;
    d.parameter = "layers.0.down";
    d.source_degree = c.source.tp_degree();
    d.target_degree = degree;
    d.max_abs = error;
    d.worst_index = static_cast<std::int64_t>(i);
    d.expected = fmt::format("{:.9g}", exact[i]);
    d.actual = fmt::format("{:.9g}", tree.f32()[i]);
    return Outcome::fail(
        fmt::format(
            "an output of the tree is {:.3g} away from the exact sum, {:.3g} times the bound of its {} "
            "additions",
            error, error / bound, static_cast<std::int64_t>(steps)),
        d);
  }
  return with_digest(std::move(outcome), Digest().add(tree));
}

Case draw(Stream& stream) {
  return draw_for("tree_error_within_bound", stream,
                  {.any_dtype = true, .arithmetic = Arithmetic::tree, .any_contract = true});
}

}  // namespace

const Law& tree_error_within_bound() {
  static const Law law{.name = "tree_error_within_bound",
                       .claim =
                           "A tree sum lies within the running error bound of its depth around the correctly "
                           "rounded exact sum.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"16_bit", 0.3}, {"target_degree>1", 0.4}, {"linear_tree", 0.08}},
                       .arithmetics = {Arithmetic::tree},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
