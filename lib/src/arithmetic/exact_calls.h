// What the parts of arithmetic `exact` hand to its kernels, and the table of kernels.
#pragma once

#include <cstdint>

namespace shardcheck {

constexpr int kExactWindow = 45;            // integers of a row are at most 2^45 in magnitude
constexpr int kExactRadix = 52;             // sums are high * 2^52 + low
constexpr std::int64_t kExactPanel = 16;    // columns of a weight panel
constexpr std::int64_t kExactSlab = 16384;  // most terms of one integer dot product
constexpr std::int64_t kExactBlock = 64;    // terms of a row whose planes lie together
constexpr int kLowestExponent = -149;       // of an integer row
constexpr int kHighestExponent = 128 - kExactWindow;

/// The magnitudes of a row of f32 as bit patterns: the largest, and the smallest that is not zero, less one
/// (all ones for a row of zeros).
struct RowScan {
  std::uint32_t largest, smallest_less_one;
};

/// Words of a row of k integers: one array of 64 per plane for every 64 of them, the last block padded.
constexpr std::int64_t row_words(std::int64_t planes, std::int64_t k) {
  return planes * ((k + kExactBlock - 1) / kExactBlock * kExactBlock);
}

/// Writes the integers nearest to x[i] * scale as the words a kernel multiplies.
struct EncodeCall {
  const float* x;
  std::int64_t count;
  double scale;
  double* words;     // row_words(planes, count)
  std::int64_t sum;  // out, where the kernel needs it: of the integers
};

/// Dot products of `rows` integer rows with the 16 of a panel, over k <= kExactSlab terms.
struct PanelCall {
  const double* a;  // rows of row_words(planes, k) words
  const std::int64_t* a_sums;
  std::int64_t rows;
  const double* w;  // [k, planes, 16]
  const std::int64_t* w_sums;
  std::int64_t k;
  std::int64_t* high;  // [rows, 16], written; |high| <= 2^52
  std::int64_t* low;   // [rows, 16], written; |low| < 2^62
};

struct ExactKernel {
  const char* name;
  std::int64_t planes;
  void (*encode)(EncodeCall&);
  void (*panel)(const PanelCall&);
};

/// A block of sums: row i of `rows` at high + i * stride and low + i * stride, |low| < 2^62.
struct WordBlock {
  const std::int64_t* high;
  const std::int64_t* low;
  std::int64_t stride, rows, count;
};

/// y[i * y_stride + j] = the f32 nearest to (high * 2^52 + low) * row_scales[i] * column_scales[j].
struct RoundCall {
  WordBlock words;
  const double* row_scales;     // powers of two
  const double* column_scales;  // powers of two
  float* y;
  std::int64_t y_stride;
};

/// The same sums with 0 <= low < 2^52, to other arrays.
struct CarryCall {
  WordBlock words;
  std::int64_t* high;
  std::int64_t* low;
  std::int64_t stride;
};

/// The exact sums of the integers x[i] * scale and of their squares, as words.
struct IntegerSumCall {
  const float* x;
  std::int64_t count;      // at most kExactSlab, or fewer than 2^63 over the largest integer
  double scale;            // x[i] * scale is an integer of at most 2^45 in magnitude
  std::int64_t high, low;  // out
};

/// Of a row after multiplication by a factor, in place: its largest value that is no NaN (-inf if there is
/// none), and whether there was no NaN.
struct ScaledRow {
  float largest;
  bool ordered;
};

/// The kernel that ExactWeights built now will use.
const ExactKernel& exact_kernel();

/// scans[i] of row i; rows lie `stride` apart.
void scan_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, RowScan* scans);
/// Whether every x[i] * scale is an integer, for |x[i] * scale| <= 2^51.
bool all_integers(const float* x, std::int64_t count, double scale);
ScaledRow scale_row(float* x, std::int64_t count, float factor);
void round_block(const RoundCall& call);
void carry_block(const CarryCall& call);
void sum_integers(IntegerSumCall& call);
void sum_squared_integers(IntegerSumCall& call);

/// The AVX-512 IFMA kernel; null where the compiler or this processor has none.
const ExactKernel* ifma_kernel();
/// Integers biased by 1.5 * 2^52, whose low 52 bits are what IFMA multiplies.
void encode_biased(EncodeCall& call);

}  // namespace shardcheck
