// The one GEMM of the library: y[m][n] = sum_k x[m][k] * w[n][k] in f32, the sum over k being a chain of
// fused multiply-adds inside each leaf and a fixed tree over leaves. Vector lanes run across n, never
// across k, so every SIMD target, every tile size and every cut of m or n gives the same bits.
// Highway dispatches to the widest target of the processor (AVX-512, AVX2, or one std::fma per lane).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Weights [n, k] (row-major, as nn.Linear stores them) repacked once into panels of 16 outputs,
/// k-major inside a panel, in the dtype they came in; missing outputs of the last panel are zero. Copies and
/// views share the panels.
class PackedWeights {
 public:
  PackedWeights() = default;
  /// Packs an f32, bf16 or f16 tensor of rank 2. Throws std::invalid_argument for any other tensor.
  explicit PackedWeights(const Tensor& weights);
  /// Packs `n` rows of length `k` that are `stride` floats apart.
  PackedWeights(const float* weights, std::int64_t n, std::int64_t k, std::int64_t stride);

  /// Outputs [first, first + count) of these weights, sharing their panels: a product with the view has the
  /// bits of a product with a copy of those rows. Throws std::out_of_range.
  PackedWeights rows(std::int64_t first, std::int64_t count) const;
  /// Columns [begin, end) of these weights, likewise.
  PackedWeights columns(std::int64_t begin, std::int64_t end) const;

  std::int64_t n() const noexcept { return n_; }
  std::int64_t k() const noexcept { return k_; }
  DType dtype() const noexcept { return storage_.dtype(); }
  /// Bytes that one product reads: whole panels, the columns of this view.
  std::int64_t bytes() const noexcept;

  static constexpr std::int64_t kPanel = 16;
  /// The panel `index` at column `column`, as elements of `dtype()`; panels are `panel_stride()` elements
  /// apart.
  const std::byte* panel(std::int64_t index, std::int64_t column = 0) const noexcept;
  std::int64_t panel_stride() const noexcept { return stored_k_ * kPanel; }
  /// Outputs of panel 0 that come before output 0 of this view.
  std::int64_t skipped() const noexcept { return first_row_ % kPanel; }

 private:
  template <typename T>
  void pack(DType dtype, const T* weights, std::int64_t n, std::int64_t k, std::int64_t stride);
  std::int64_t element_bytes() const noexcept { return size_bits(dtype()) / 8; }

  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  std::int64_t first_row_ = 0;  // of this view, in what is stored
  std::int64_t first_column_ = 0;
  std::int64_t stored_k_ = 0;
  Tensor storage_;
};

/// How the sum over k is cut. `leaf` is the leaf width; `leaves` the leaves of the whole tree, of which
/// this call's k covers [first, first + ceil(k / leaf)). Only the last leaf of the whole tree may be short.
struct Reduction {
  TreeShape shape = TreeShape::halving;
  std::int64_t leaf = 0;  // 0: one chain over all of k
  std::int64_t leaves = 1;
  std::int64_t first = 0;

  static Reduction chain() { return {}; }
  /// The whole sum of length k held here.
  static Reduction whole(TreeShape shape, std::int64_t k, std::int64_t leaf);
  /// Columns [begin, end) of a sum of length k. Throws std::invalid_argument when begin or end, short of k,
  /// is no multiple of the leaf; the message names the boundary and the largest leaf that would do.
  static Reduction part(TreeShape shape, std::int64_t k, std::int64_t leaf, std::int64_t begin,
                        std::int64_t end);
};

/// Nodes that `gemm_nodes` produces for this reduction over `k` local columns, left to right.
std::vector<TreeNode> nodes_of(const Reduction& reduction, std::int64_t k);

/// y[i*ldy + j] = the root, for a reduction that covers its whole tree. x has `m` rows of w.k() floats,
/// `ldx` apart. m = 0 and n = 0 write nothing; k = 0 writes +0. Throws std::invalid_argument when the
/// reduction covers only part of its tree.
void gemm(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
          const Reduction& reduction, float* y, std::int64_t ldy);

/// The nodes of a rank's cover: node q goes to y + q*m*w.n(), row-major [m, n]. One node (the plain
/// partial sum) for `Reduction::chain()`.
void gemm_nodes(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
                const Reduction& reduction, float* y);
/// The same for other nodes of the tree over the local columns, such as its single leaves.
void gemm_nodes(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
                const Reduction& reduction, std::span<const TreeNode> nodes, float* y);

constexpr int kMaxGemmThreads = 256;
/// How many threads, the caller among them, share each later product of the calling thread (1 at first). Bits
/// do not depend on it, and a product too small to gain stays on the caller. Every calling thread has workers
/// of its own, which end with it; fork only while it is 1, for a child has no workers. Throws
/// std::invalid_argument unless 1 <= threads <= kMaxGemmThreads, std::system_error when the system has no
/// more threads.
void set_gemm_threads(int threads);
int gemm_threads();
/// Whether the calling thread shares small products too (false at first): for tests that sharing changes no
/// bit.
void share_every_gemm(bool every);

/// Names of the SIMD targets this build can run on this processor, best first; and a way for tests to
/// force one ("" restores the best). Throws std::invalid_argument for a target that cannot run here.
std::vector<std::string> simd_targets();
void force_simd_target(const std::string& name);
/// Name of the one that kernels run on now.
std::string simd_target_in_force();

/// Seconds spent inside gemm and gemm_nodes by the calling thread since it last called this (benchmarks).
/// The first call of a thread starts the count and returns 0.
double take_gemm_seconds();

}  // namespace shardcheck
