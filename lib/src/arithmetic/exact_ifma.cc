// The AVX-512 IFMA kernel. Highway has no 52-bit multiply-add, so this one file uses the intrinsics, compiled
// for its instruction set by function attributes and chosen at run time.
//
// Integers a, b with |a|, |b| <= 2^45 are biased to A = a + 2^51 and B = b + 2^51, below 2^52. The
// instruction pair adds A*B mod 2^52 to one word and floor(A*B / 2^52) to another. At most 4096 of the low
// addends fit in 64 bits; then their carries move up. The high sum may wrap: it is exact modulo 2^64, and
// after
//   sum a*b = sum A*B - 2^51 * (sum a + sum b) - k * 2^102
// it is below 2^53 in magnitude.
#include <algorithm>

#include "arithmetic/exact_calls.h"
#include "hwy/highway.h"

#if HWY_ARCH_X86_64 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512dq,avx512vl,avx512ifma")
namespace shardcheck {
namespace {

constexpr int kLanes = 8;
constexpr int kVectors = 2;
static_assert(kVectors * kLanes == kExactPanel);
constexpr int kRows = 6;              // 24 accumulators, 2 weights, 1 input
constexpr std::int64_t kBlock = 256;  // of the panel in the first-level cache; at most 4096

// Compilers' own vectors: their operators, unlike the intrinsics for them, raise no false warnings.
using Words = unsigned long long __attribute__((vector_size(64), may_alias));
using Integers = long long __attribute__((vector_size(64), may_alias));

Words& words_at(std::int64_t* aligned) { return *reinterpret_cast<Words*>(aligned); }

template <int kTileRows>
void tile(const double* a, std::ptrdiff_t a_stride, const double* w, std::int64_t count,
          std::int64_t* to_high, std::int64_t* to_low) {
  __m512i high[kTileRows][kVectors] = {}, low[kTileRows][kVectors] = {};
  for (std::int64_t c = 0; c < count; ++c, ++a, w += kExactPanel) {
    const __m512i left = _mm512_load_si512(w), right = _mm512_load_si512(w + kLanes);
    for (int i = 0; i < kTileRows; ++i) {
      const __m512i input = _mm512_castpd_si512(_mm512_set1_pd(a[i * a_stride]));
      low[i][0] = _mm512_madd52lo_epu64(low[i][0], input, left);
      low[i][1] = _mm512_madd52lo_epu64(low[i][1], input, right);
      high[i][0] = _mm512_madd52hi_epu64(high[i][0], input, left);
      high[i][1] = _mm512_madd52hi_epu64(high[i][1], input, right);
    }
  }
  for (int i = 0; i < kTileRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      const std::ptrdiff_t at = i * kExactPanel + j * kLanes;
      words_at(to_high + at) += (Words)high[i][j] + ((Words)low[i][j] >> kExactRadix);
      words_at(to_low + at) += (Words)low[i][j] & ((1ULL << kExactRadix) - 1);
    }
  }
}

using TileFunction = void (*)(const double*, std::ptrdiff_t, const double*, std::int64_t, std::int64_t*,
                              std::int64_t*);
constexpr TileFunction kTiles[kRows + 1] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

// Words to start from: what the biases will have added, negated.
void start(const PanelCall& call) {
  const auto constant = static_cast<unsigned long long>(call.k) << (2 * (kExactRadix - 1) - kExactRadix);
  for (std::int64_t i = 0; i < call.rows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      const Integers sum = (Integers)_mm512_loadu_si512(call.w_sums + j * kLanes) + call.a_sums[i];
      const std::ptrdiff_t at = i * kExactPanel + j * kLanes;
      words_at(call.high + at) = -(Words)(sum >> 1) - constant;
      words_at(call.low + at) = -((Words)(sum & 1) << (kExactRadix - 1));
    }
  }
}

// Tiles of nearly equal height.
void panel(const PanelCall& call) {
  start(call);
  const std::int64_t stride = row_words(1, call.k), tiles = (call.rows + kRows - 1) / kRows;
  for (std::int64_t first = 0; first < call.k; first += kBlock) {
    const std::int64_t count = std::min(kBlock, call.k - first);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t row = call.rows * t / tiles, end = call.rows * (t + 1) / tiles;
      kTiles[end - row](call.a + row * stride + first, stride, call.w + first * kExactPanel, count,
                        call.high + row * kExactPanel, call.low + row * kExactPanel);
    }
  }
}

}  // namespace
}  // namespace shardcheck
HWY_POP_ATTRIBUTES

namespace shardcheck {

const ExactKernel* ifma_kernel() {
  static const bool runs = __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl");
  static const ExactKernel kernel = {.name = "ifma", .planes = 1, .encode = encode_biased, .panel = panel};
  return runs ? &kernel : nullptr;
}

}  // namespace shardcheck

#else

namespace shardcheck {

const ExactKernel* ifma_kernel() { return nullptr; }

}  // namespace shardcheck
#endif
