// The libraries that peers_bench measures against, each as a function that prepares one product. A library
// the build did not find prepares none.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shardcheck/tensor/tensor.h"

namespace shardcheck::bench {

struct Shape {
  std::int64_t m, n, k;
  double target;  // for tree / best peer
  std::string text() const { return fmt::format("{}x{}x{}", m, n, k); }
  double flops() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }
};

using Product = std::function<void()>;  // writes y
using Floats = std::vector<float>;

// x [m, k] and w [n, k] of one shape; `transposed` is w as [k, n]. The values are of `dtype`.
struct Operands {
  Operands(const Shape& shape, DType dtype);

  Floats outputs() const { return Floats(static_cast<std::size_t>(shape.m * shape.n), -1.0F); }
  Tensor narrow(const Floats& values, std::int64_t rows, std::int64_t columns) const {
    return Tensor::from({rows, columns}, values).to(dtype);
  }

  Shape shape;
  DType dtype;
  Floats x, w, transposed;
};

// y = x w^T of operands that outlive the product; empty where the library has no kernel.
Product onednn_product(const Operands& operands, Floats& y, int threads);
Product openblas_product(const Operands& operands, Floats& y, int threads);
Product libxsmm_product(const Operands& operands, Floats& y, int threads);

bool has_onednn();
bool has_openblas();
bool has_libxsmm();

// For the whole process, and only before its first product.
void limit_onednn_to_avx512();

// OpenBLAS knows a list of processor models, and on a newer one falls back to a kernel from before AVX.
bool openblas_is_slow_here();

}  // namespace shardcheck::bench
