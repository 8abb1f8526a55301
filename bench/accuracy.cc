// How far a sum is from the exact one, in units of the output, for the reductions that a row-parallel layer
// can use:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target accuracy
//   ./accuracy [--rows=N] [--outputs=N]  (from the bench folder of the build tree; 16 and 1024 by default)
//
// Inputs and weights are random normal bf16 values. tree: leaves of 128, every node f32, one rounding to bf16
// at the root. chain: one f32 chain over all of K, then that rounding. bf16 nodes: the same tree with every
// leaf and every node rounded to bf16, as TBIK keeps them; leaves of 256 are its own tile. Errors are against
// a sum in f64 and divided by the root mean square of the output. `before` is the root before its final
// rounding to bf16, `after` what a layer hands on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "flags.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::bench {
namespace {

using Floats = std::vector<float>;

Tensor normal_bf16(const Shape& shape, const char* name) {
  Tensor values = Tensor::uninitialized(DType::f32, shape);
  fill_normal(values.mutable_f32(), stream_key(1, name), 0.0F, 1.0F);
  return values.to(DType::bf16);
}

void round_to_bf16(Floats& values) {
  for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
}

/// One product x W^T [m, n] over K = `k`.
class Product {
 public:
  Product(std::int64_t m, std::int64_t n, std::int64_t k)
      : m_(m), n_(n), k_(k), x_(normal_bf16({m, k}, "x").to(DType::f32)) {
    const Tensor weights = normal_bf16({n, k}, "w");
    packed_ = PackedWeights(weights);
    sum_in_f64(weights.to(DType::f32));
  }

  const std::vector<double>& truth() const { return truth_; }

  Floats chain() const { return sum_of(0, k_, Reduction::chain()); }
  Floats tree(std::int64_t leaf) const {
    return sum_of(0, k_, Reduction::whole(TreeShape::halving, k_, leaf));
  }
  /// The root of a tree whose leaves and nodes are all rounded to bf16, itself not yet.
  Floats bf16_nodes(std::int64_t leaf) const { return bf16_node({0, (k_ + leaf - 1) / leaf}, leaf); }

 private:
  Floats sum_of(std::int64_t first, std::int64_t last, const Reduction& reduction) const {
    Floats y(static_cast<std::size_t>(m_ * n_));
    gemm(x_.f32().data() + first, k_, m_, packed_.columns(first, last), reduction, y.data(), n_);
    return y;
  }

  Floats bf16_node(TreeNode node, std::int64_t leaf) const {
    if (node.last - node.first == 1)
      return sum_of(node.first * leaf, std::min(k_, node.last * leaf), Reduction::chain());
    const std::int64_t split = split_point(TreeShape::halving, node);
    Floats left = bf16_node({node.first, split}, leaf), right = bf16_node({split, node.last}, leaf);
    round_to_bf16(left);
    round_to_bf16(right);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }

  void sum_in_f64(const Tensor& weights) {
    for (std::int64_t i = 0; i < m_; ++i) {
      for (std::int64_t j = 0; j < n_; ++j) {
        const float *x = x_.f32().data() + i * k_, *w = weights.f32().data() + j * k_;
        double sum = 0.0;
        for (std::int64_t c = 0; c < k_; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(w[c]);
        truth_.push_back(sum);
      }
    }
  }

  std::int64_t m_, n_, k_;
  Tensor x_;
  PackedWeights packed_;
  std::vector<double> truth_;
};

struct Errors {
  double rms = 0.0;
  double max = 0.0;
};

/// Both relative to the root mean square of `truth`.
Errors errors_of(const Floats& values, const std::vector<double>& truth) {
  double squares = 0.0, of_truth = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(static_cast<double>(values[i]) - truth[i]);
    squares += error * error;
    of_truth += truth[i] * truth[i];
    largest = std::max(largest, error);
  }
  const auto count = static_cast<double>(values.size());
  const double scale = std::sqrt(of_truth / count);
  return {std::sqrt(squares / count) / scale, largest / scale};
}

void print_sums(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Product product(m, n, k);
  Errors ours;
  const auto print = [&](const std::string& name, Floats root) {
    const Errors before = errors_of(root, product.truth());
    round_to_bf16(root);
    const Errors after = errors_of(root, product.truth());
    if (ours.rms == 0.0) ours = after;
    fmt::print("| {} | {} | {:.2e} | {:.2e} | {:.2e} | {:.2e} | {:.2f} | {:.2f} |\n", k, name, before.rms,
               before.max, after.rms, after.max, after.rms / ours.rms, after.max / ours.max);
  };
  print("tree, leaf 128, f32 nodes", product.tree(128));
  print("one f32 chain", product.chain());
  print("bf16 nodes, leaf 128", product.bf16_nodes(128));
  print("bf16 nodes, leaf 256", product.bf16_nodes(256));
}

int run(const Flags& flags) {
  const std::int64_t m = flags.integer("rows", 16, 1, 256), n = flags.integer("outputs", 1024, 1, 4096);
  fmt::print("{} x {} outputs\n\n", m, n);
  fmt::print("| K | sum | RMS before | max before | RMS after | max after | RMS / tree's | max / tree's |\n");
  fmt::print("|---:|---|---:|---:|---:|---:|---:|---:|\n");
  for (const std::int64_t k : {4096, 14336, 18944}) print_sums(m, n, k);
  return 0;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using shardcheck::bench::Flags;
  return shardcheck::bench::exit_code_of("accuracy", [&] {
    return shardcheck::bench::run(Flags(argc, argv, {"rows", "outputs"}));
  });
}
