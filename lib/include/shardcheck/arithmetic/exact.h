// Arithmetic `exact`: every sum of products is the correctly rounded f32 value of the exact sum of the exact
// products. The result is a function of the multiset of products, so any order of k, any partition of k over
// ranks, any merge order, any kernel and any instruction set give the same bits: function-preserving relabels
// compare equal, and every layout bug that reaches a logit compares different. Rows are written as 45-bit
// integers times a power of two (nearly always one such row); integer dot products are accumulated exactly as
// high * 2^52 + low in int64; there is one rounding, at the end. The proof stands in
// lib/src/arithmetic/exact-inl.h. Rounding assumes the default floating-point environment (to nearest,
// subnormals kept).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A fixed-point accumulator of 640 bits (lsb 2^-298): the exact sum of up to 2^62 f32 values and products of
/// two f32 values. Infinities and NaN are flags: the sum is NaN if a NaN was added, or 0 * inf, or both
/// infinities. An exact zero rounds to +0, also when every addend was -0. The slow path of everything below.
class LongAccumulator {
 public:
  void add(float value) noexcept;
  void add_product(float a, float b) noexcept;
  /// Adds (high * 2^52 + low) * 2^exponent, -298 <= exponent <= 166.
  void add_words(std::int64_t high, std::int64_t low, int exponent) noexcept;
  void merge(const LongAccumulator& other) noexcept;
  /// To nearest, ties to even; overflow to infinity, gradual underflow that keeps the sign; NaN is
  /// 0x7fc00000.
  float round() const noexcept;

  /// The state as plain words, limbs first, flags last; and back. Throws std::invalid_argument when the last
  /// word holds anything but flags.
  static constexpr std::size_t kWords = 11;
  std::array<std::uint64_t, kWords> words() const noexcept;
  static LongAccumulator from_words(std::span<const std::uint64_t, kWords> words);

  /// Equal states are equal sums, and equal sums of the same infinities and NaN are equal states.
  bool operator==(const LongAccumulator&) const = default;

 private:
  static constexpr std::size_t kLimbs = 10;
  std::array<std::uint64_t, kLimbs> limbs_{};  // two's complement
  bool nan_ = false, plus_infinity_ = false, minus_infinity_ = false;
};

/// Tops of rows: the smallest t >= -149 with |x| < 2^t for every finite x of the row, at most 128. Ranks that
/// hold parts of a row agree on tops (maximum over ranks) before they build integers; their partial sums then
/// have the same exponents and merge by plain int64 addition. Without agreement a merge is as exact, and
/// slower.
std::vector<std::int32_t> row_tops(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t k);

/// Weights [n, k] as integer rows, packed once for the kernel in force at that moment, which every product
/// with them then runs.
class ExactWeights {
 public:
  /// No weights: n = k = 0.
  ExactWeights();
  /// f32, bf16 or f16 of rank 2 (16-bit values are widened: exact). `tops`: agreed tops of the n rows, none
  /// below the row's own; empty: the rows' own. Throws std::invalid_argument for another tensor, another
  /// number of tops or a top outside -149..128.
  explicit ExactWeights(const Tensor& weights, std::span<const std::int32_t> tops = {});
  ExactWeights(const float* weights, std::int64_t n, std::int64_t k, std::int64_t stride,
               std::span<const std::int32_t> tops = {});
  ~ExactWeights();
  ExactWeights(ExactWeights&&) noexcept;
  ExactWeights& operator=(ExactWeights&&) noexcept;

  std::int64_t n() const noexcept;
  std::int64_t k() const noexcept;
  /// Name of the kernel that products with these weights run.
  const char* kernel() const noexcept;

  struct Packed;
  const Packed& packed() const noexcept { return *packed_; }

 private:
  std::unique_ptr<Packed> packed_;
};

/// Exact sums of an [m, n] product before rounding: what ranks exchange. Element (i, j) is
/// (high * 2^52 + low) * 2^(row exponent + column exponent) plus, for few elements, a LongAccumulator.
/// The state after any sequence of merges and additions depends on their order; what `round` writes does not.
class ExactPartial {
 public:
  ExactPartial() = default;

  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t columns() const noexcept { return columns_; }

  /// Adds another partial of the same shape, whatever its exponents and kernel. Throws std::invalid_argument
  /// for another shape.
  void merge(const ExactPartial& other);

  /// Adds a * b to one element. Throws std::out_of_range.
  void add_product(std::int64_t row, std::int64_t column, float a, float b);
  /// Adds bias[j] to output j of every row. Throws std::invalid_argument unless there are `columns()` of
  /// them.
  void add_bias(std::span<const float> bias);

  /// y[i*ldy + j], one rounding each.
  void round(float* y, std::int64_t ldy) const;

  /// The bytes a rank ships, and back. `from_bytes` throws std::invalid_argument on bytes that are no partial
  /// and allocates no more than a small multiple of their size.
  std::vector<std::byte> bytes() const;
  static ExactPartial from_bytes(std::span<const std::byte> bytes);

  /// The compact wire form, for ranks that agreed on all tops: (1) any int64 sum all-reduce, in any order,
  /// over `words()`, in place: [2, rows, columns], high then low; (2) an all-gather of `rest_bytes()`, nearly
  /// always 24 bytes, and `set_rest` with the concatenation, in any order. The partial is then the sum over
  /// all ranks. Every rank keeps |high| < 2^54 and 0 <= low < 2^52 whatever k is, so that the sums of at most
  /// kMaxRanks ranks cannot overflow; `set_rest` counts the ranks and throws std::invalid_argument above
  /// that, when the bytes are malformed, or when a rank had another shape or other exponents.
  static constexpr std::int64_t kMaxRanks = 128;
  std::span<std::int64_t> words() noexcept { return words_; }
  std::vector<std::byte> rest_bytes() const;
  void set_rest(std::span<const std::byte> gathered);

 private:
  friend class ExactPartialBuilder;
  using Rest = std::vector<std::pair<std::int64_t, LongAccumulator>>;  // by flat index, ascending

  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<std::int32_t> row_exponents_, column_exponents_;
  std::vector<std::int64_t> words_;
  Rest rest_;  // what words cannot hold: further integer rows, infinities, large sums
};

/// Exact partial sums of x [m, k] (rows `ldx` apart) against w. `tops` as in ExactWeights, for the rows of x.
/// k may be 0.
ExactPartial exact_partial(const float* x, std::int64_t ldx, std::int64_t m, const ExactWeights& w,
                           std::span<const std::int32_t> tops = {});

/// y[i*ldy + j] = round(exact x W^T + bias): what exact_partial, add_bias and round give, in one pass when
/// there is no bias. `bias` is empty or has n values (std::invalid_argument).
void exact_gemm(const float* x, std::int64_t ldx, std::int64_t m, const ExactWeights& w, float* y,
                std::int64_t ldy, std::span<const float> bias = {});

/// sums[i] = the correctly rounded sum of x[i*width + j]^2.
void exact_sum_of_squares(const float* x, std::int64_t rows, std::int64_t width, float* sums);

/// The exact sum of values, to be merged with that of other ranks; and its correctly rounded value.
LongAccumulator exact_sum_partial(std::span<const float> values);
float exact_sum(std::span<const float> values);

/// Names of the integer kernels this machine can run, best first: "ifma" (AVX-512 IFMA), "pair" (any SIMD
/// target: integers as pairs of halves, three f64 multiply-adds for a product), "scalar" (128-bit integers).
/// All give the same bits.
std::vector<std::string> exact_kernels();
/// Forces one for ExactWeights built from now on, by every thread ("" restores the best; "ifma" is not chosen
/// by itself while force_simd_target holds a target below AVX-512). Throws std::invalid_argument for a kernel
/// that cannot run here.
void force_exact_kernel(const std::string& name);

}  // namespace shardcheck
