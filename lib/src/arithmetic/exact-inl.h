// The SIMD parts of arithmetic `exact`, compiled once per target by exact_kernels.cc, and the proof of the
// whole.
//
// 1. Integer rows. A finite f32 is j * 2^e with |j| < 2^24. Let every |x| of a row be below 2^T and take
//    e = max(T - 45, -149). The integer i nearest to x * 2^-e has |i| <= 2^45, and x - i * 2^e is a suffix of
//    the bits of x, hence an f32, at most 2^(e-1): again a row, with a smaller T. At e = -149 nothing
//    remains, so a row is the exact sum of at most 7 integer rows times powers of two, nearly always of one.
//    Further rows become further rows and columns of the same integer product: no term is ever slow.
// 2. Kernels. Each gives the exact sum of up to 2^14 products of two integers as high * 2^52 + low.
//    pair: i = h * 2^23 + l with l nearest to zero: |h| <= 2^22, |l| <= 2^22. The sums of h*h', l*l' and
//      (h+l)*(h'+l') over 64 terms are integers of at most 2^52 in magnitude, so f64 holds every value on the
//      way and rounds nothing, fused or not. The middle sum h*l' + l*h' is a difference, at most 2^51. Every
//      64 terms the sums become int64: S + 1.5 * 2^52 has S in its low bits when |S| <= 2^51.
//    ifma: see exact_ifma.cc. scalar: 128-bit integers.
//    All are exact sums of integers, hence independent of order, blocks and lanes.
// 3. Rounding. Carries are moved so that 0 <= low < 2^52; let v = high * 2^52 + low and
//    d = RN(RN(high) * 2^52 + low) in f64. Claim: d strictly on one side of a midpoint g of two neighbouring
//    f32 puts v on that side, so that rounding d to f32 rounds v. If |high| <= 2^53, d = RN(v), and RN is
//    monotone with RN(g) = g. Otherwise |v| > 2^104; for g near v, which has 25 significant bits and is no
//    power of two, g = G * 2^52 with an integer G, |G| > 2^53. Let x = RN(high).
//      v > g: high >= G, so x >= G and, low being no less than 0, d >= g.
//      v < g: high <= G - 1, so x <= G. If x <= G - 1, x * 2^52 + low < g and d <= g. If x = G, the f64
//      beside g are at least 2 * 2^52 away and low is less than half of that: d = g.
//    What is left, d = g for some g (low 29 bits 2^28), results that are subnormal in f32 (midpoints are
//    coarser there) and those of 2^127 and more, is rounded in 128-bit integers. Scaling by a power of two is
//    exact in f64 here.
// 4. Merging. A partial sum is a pair of integers and an exponent, plus a fixed-point number of 640 bits for
//    what does not fit: adding those is associative and commutative.
// 5. Infinities and NaN are taken out of the integer rows (0 in their place) and put into the fixed-point
//    number of every output of their row or column, as flags that are combined by OR.
#if defined(SHARDCHECK_SRC_ARITHMETIC_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_EXACT_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_EXACT_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_EXACT_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "arithmetic/exact_calls.h"
#include "arithmetic/exact_rounding.h"
#include "arithmetic/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<double, 8>;
using Narrow = hn::Rebind<float, Wide>;
using Int = hn::RebindToSigned<Wide>;
using Word = hn::RebindToUnsigned<Wide>;
using Reals = hn::Vec<Wide>;
constexpr std::int64_t kWideLanes = static_cast<std::int64_t>(hn::MaxLanes(Wide()));

constexpr double kMagic = 0x1.8p52;  // i + kMagic has i in its low 52 bits, |i| <= 2^51
constexpr auto kMagicBits = std::bit_cast<std::uint64_t>(kMagic);
constexpr int kHalf = 23;  // bits of the lower half of an integer

HWY_INLINE RowScan ScanRow(const float* x, std::int64_t count) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(du, 0x7fffffffU), one = hn::Set(du, 1U);
  auto largest = hn::Zero(du), smallest = hn::Set(du, ~0U);
  for (std::int64_t i = 0; i < count; i += lanes) {
    // Missing lanes are zeros, which change neither.
    const auto values = LoadFirst(d, x + i, static_cast<std::size_t>(std::min(lanes, count - i)));
    const auto bits = hn::And(hn::BitCast(du, values), magnitude);
    largest = hn::Max(largest, bits);
    smallest = hn::Min(smallest, hn::Sub(bits, one));
  }
  return {hn::GetLane(hn::MaxOfLanes(du, largest)), hn::GetLane(hn::MinOfLanes(du, smallest))};
}

void ScanRows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, RowScan* scans) {
  for (std::int64_t i = 0; i < rows; ++i) scans[i] = ScanRow(x + i * stride, count);
}

ScaledRow ScaleRow(float* x, std::int64_t count, float factor) {
  const hn::CappedTag<float, 16> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  bool ordered = true;
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto left = static_cast<std::size_t>(std::min(lanes, count - i));
    const auto values = hn::Mul(LoadFirst(d, x + i, left), hn::Set(d, factor));
    StoreFirst(values, d, x + i, left);
    const auto present = hn::IfThenElse(hn::FirstN(d, left), values, lowest);
    ordered &= hn::AllTrue(d, hn::Eq(present, present));
    largest = hn::IfThenElse(hn::Gt(present, largest), present, largest);
  }
  return {hn::GetLane(hn::MaxOfLanes(d, largest)), ordered};
}

/// fn(first, left, values * scale) for runs of `left` <= kWideLanes values that do not cross a multiple of
/// 64; missing lanes are 0.
template <class Fn>
HWY_INLINE void ForEachScaled(const float* x, std::int64_t count, double scale, Fn&& fn) {
  const Wide d;
  const Narrow narrow;
  const Reals factor = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + kWideLanes <= count; i += kWideLanes) {
    fn(i, kWideLanes, hn::Mul(hn::PromoteTo(d, hn::LoadU(narrow, x + i)), factor));
  }
  if (i == count) return;
  const auto left = static_cast<std::size_t>(count - i);
  fn(i, count - i, hn::Mul(hn::PromoteTo(d, LoadFirst(narrow, x + i, left)), factor));
}

bool AllIntegers(const float* x, std::int64_t count, double scale) {
  const Wide d;
  const Reals magic = hn::Set(d, kMagic);
  Reals rest = hn::Zero(d);
  ForEachScaled(x, count, scale, [&](std::int64_t /*i*/, std::int64_t /*left*/, Reals value) HWY_ATTR {
    rest = hn::Or(rest, hn::Sub(value, hn::Sub(hn::Add(value, magic), magic)));
  });
  return hn::AllTrue(d, hn::Eq(rest, hn::Zero(d)));
}

struct Halves {
  Reals high, low;
};
HWY_INLINE Halves SplitInteger(Reals integer) {
  const Wide d;
  const Reals magic = hn::Set(d, kMagic);
  const Reals high = hn::Sub(hn::Add(hn::Mul(integer, hn::Set(d, 0x1p-23)), magic), magic);
  return {high, hn::Sub(integer, hn::Mul(high, hn::Set(d, 0x1p23)))};
}

void EncodeHalves(EncodeCall& call) {
  const Wide d;
  const Reals magic = hn::Set(d, kMagic);
  ForEachScaled(call.x, call.count, call.scale, [&](std::int64_t i, std::int64_t left, Reals value) HWY_ATTR {
    const Halves halves = SplitInteger(hn::Sub(hn::Add(value, magic), magic));
    const auto lanes = static_cast<std::size_t>(left);
    double* to = call.words + i / kExactBlock * kExactBlock * 2 + i;
    StoreFirst(halves.high, d, to, lanes);
    StoreFirst(halves.low, d, to + kExactBlock, lanes);
    StoreFirst(hn::Add(halves.high, halves.low), d, to + 2 * kExactBlock, lanes);
  });
}

void EncodeBiased(EncodeCall& call) {
  const Wide d;
  const Word dw;
  const Reals magic = hn::Set(d, kMagic);
  auto total = hn::Zero(dw);
  ForEachScaled(call.x, call.count, call.scale, [&](std::int64_t i, std::int64_t left, Reals value) HWY_ATTR {
    const Reals biased = hn::Add(value, magic);
    StoreFirst(biased, d, call.words + i, static_cast<std::size_t>(left));
    total = hn::Add(total, hn::Sub(hn::BitCast(dw, biased), hn::Set(dw, kMagicBits)));
  });
  call.sum = static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(dw, total)));
}

// Adds sums over at most 64 terms to words in memory.
HWY_INLINE void AddBlock(Reals high, Reals low, Reals both, std::int64_t* to_high, std::int64_t* to_low) {
  const Wide d;
  const Int di;
  const Word dw;
  constexpr int kCarry = kExactRadix - kHalf;
  constexpr std::uint64_t kTopMask = (1U << (kExactRadix - 2 * kHalf)) - 1, kMiddleMask = (1U << kCarry) - 1;
  const Reals magic = hn::Set(d, kMagic);
  const auto top = hn::BitCast(dw, hn::Add(high, magic));
  const auto middle = hn::BitCast(dw, hn::Add(hn::Sub(hn::Sub(both, high), low), magic));
  const auto bottom = hn::BitCast(dw, hn::Add(low, magic));
  // Shifts floor; the bits of kMagic come out as constants, because 2^29 divides them.
  constexpr std::uint64_t kMagicCarries = (kMagicBits >> (kExactRadix - 2 * kHalf)) + (kMagicBits >> kCarry);
  const auto carries = hn::Add(hn::ShiftRight<kExactRadix - 2 * kHalf>(top), hn::ShiftRight<kCarry>(middle));
  const auto rest = hn::Add(hn::Add(hn::ShiftLeft<2 * kHalf>(hn::And(top, hn::Set(dw, kTopMask))),
                                    hn::ShiftLeft<kHalf>(hn::And(middle, hn::Set(dw, kMiddleMask)))),
                            bottom);
  hn::Store(hn::Add(hn::Load(di, to_high), hn::BitCast(di, hn::Sub(carries, hn::Set(dw, kMagicCarries)))), di,
            to_high);
  hn::Store(hn::Add(hn::Load(di, to_low), hn::BitCast(di, hn::Sub(rest, hn::Set(dw, kMagicBits)))), di,
            to_low);
}

constexpr int kPairVectors = 2;
constexpr std::int64_t kPairWidth = kPairVectors * kWideLanes;
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64
constexpr int kPairRows = 4;
#else
constexpr int kPairRows = 2;
#endif

template <int kRows>
HWY_INLINE void AddPlane(const double* HWY_RESTRICT a, std::ptrdiff_t a_stride, const double* HWY_RESTRICT w,
                         Reals (&sum)[kRows][kPairVectors]) {
  const Wide d;
  Reals weights[kPairVectors];
  for (int j = 0; j < kPairVectors; ++j) weights[j] = hn::Load(d, w + j * kWideLanes);
  for (int i = 0; i < kRows; ++i) {
    const Reals input = hn::Set(d, a[i * a_stride]);
    for (int j = 0; j < kPairVectors; ++j) sum[i][j] = hn::MulAdd(input, weights[j], sum[i][j]);
  }
}

// One block of k: rows of `a` lie a_stride apart.
template <int kRows>
HWY_NOINLINE void PairTile(const double* HWY_RESTRICT a, std::ptrdiff_t a_stride,
                           const double* HWY_RESTRICT w, std::int64_t count,
                           std::int64_t* HWY_RESTRICT to_high, std::int64_t* HWY_RESTRICT to_low) {
  const Wide d;
  Reals high[kRows][kPairVectors], low[kRows][kPairVectors], both[kRows][kPairVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPairVectors; ++j) high[i][j] = low[i][j] = both[i][j] = hn::Zero(d);
  }
  for (std::int64_t c = 0; c < count; ++c, ++a, w += 3 * kExactPanel) {
    AddPlane(a, a_stride, w, high);
    AddPlane(a + kExactBlock, a_stride, w + kExactPanel, low);
    AddPlane(a + 2 * kExactBlock, a_stride, w + 2 * kExactPanel, both);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kPairVectors; ++j) {
      const std::ptrdiff_t at = i * kExactPanel + j * kWideLanes;
      AddBlock(high[i][j], low[i][j], both[i][j], to_high + at, to_low + at);
    }
  }
}

// One block of k times all rows: the block of the panel stays in the first-level cache.
HWY_INLINE void PairBlock(const PanelCall& call, std::int64_t first, std::int64_t column) {
  const std::int64_t count = std::min(kExactBlock, call.k - first), stride = row_words(3, call.k);
  const double *a = call.a + 3 * first, *w = call.w + first * 3 * kExactPanel + column;
  std::int64_t *high = call.high + column, *low = call.low + column;
  std::int64_t row = 0;
  for (; row + kPairRows <= call.rows; row += kPairRows) {
    PairTile<kPairRows>(a + row * stride, stride, w, count, high + row * kExactPanel,
                        low + row * kExactPanel);
  }
  for (; row < call.rows; ++row) {
    PairTile<1>(a + row * stride, stride, w, count, high + row * kExactPanel, low + row * kExactPanel);
  }
}

void PairPanel(const PanelCall& call) {
  std::fill_n(call.high, call.rows * kExactPanel, 0);
  std::fill_n(call.low, call.rows * kExactPanel, 0);
  for (std::int64_t first = 0; first < call.k; first += kExactBlock) {
    for (std::int64_t column = 0; column < kExactPanel; column += kPairWidth) PairBlock(call, first, column);
  }
}

// Are there lanes that the rounding of d to f32 may get wrong? See the proof.
HWY_INLINE bool NeedsCare(Reals d_value, Reals result) {
  const Wide d;
  const Word dw;
  const auto tail = hn::And(hn::BitCast(dw, d_value), hn::Set(dw, 0x1fffffffU));
  const Reals size = hn::Abs(result);
  const auto plain = hn::Or(hn::And(hn::Ge(size, hn::Set(d, 0x1p-126)), hn::Lt(size, hn::Set(d, 0x1p127))),
                            hn::Eq(size, hn::Zero(d)));
  const auto middle = hn::RebindMask(d, hn::Eq(tail, hn::Set(dw, 0x10000000U)));
  return !hn::AllTrue(d, hn::AndNot(middle, plain));
}

HWY_NOINLINE void RoundCarefully(const RoundCall& call, std::int64_t row, std::int64_t first,
                                 std::int64_t count) {
  const WordBlock& words = call.words;
  for (std::int64_t j = first; j < first + count; ++j) {
    const int exponent = exponent_of(call.row_scales[row]) + exponent_of(call.column_scales[j]);
    call.y[row * call.y_stride + j] =
        round_words(words.high[row * words.stride + j], words.low[row * words.stride + j], exponent);
  }
}

HWY_INLINE void RoundRow(const RoundCall& call, std::int64_t row) {
  const Wide d;
  const Int di;
  const Narrow narrow;
  const std::int64_t *high = call.words.high + row * call.words.stride,
                     *low = call.words.low + row * call.words.stride;
  const Reals row_scale = hn::Set(d, call.row_scales[row]);
  const auto mask = hn::Set(di, (std::int64_t{1} << kExactRadix) - 1);
  for (std::int64_t j = 0; j < call.words.count; j += kWideLanes) {
    const std::int64_t left = std::min(kWideLanes, call.words.count - j);
    const auto lanes = static_cast<std::size_t>(left);
    const auto lower = LoadFirst(di, low + j, lanes);
    const auto carry = hn::ShiftRight<kExactRadix>(lower);
    const Reals high_part = hn::ConvertTo(d, hn::Add(LoadFirst(di, high + j, lanes), carry));
    const Reals low_part = hn::ConvertTo(d, hn::And(lower, mask));
    // The product is exact: fused or not, there is one rounding.
    const Reals value = hn::MulAdd(high_part, hn::Set(d, 0x1p52), low_part);
    const Reals result = hn::Mul(value, hn::Mul(LoadFirst(d, call.column_scales + j, lanes), row_scale));
    if (HWY_UNLIKELY(NeedsCare(value, result))) {
      RoundCarefully(call, row, j, left);
    } else {
      StoreFirst(hn::DemoteTo(narrow, result), narrow, call.y + row * call.y_stride + j, lanes);
    }
  }
}

void RoundBlock(const RoundCall& call) {
  for (std::int64_t row = 0; row < call.words.rows; ++row) RoundRow(call, row);
}

void CarryBlock(const CarryCall& call) {
  const Int di;
  const auto mask = hn::Set(di, (std::int64_t{1} << kExactRadix) - 1);
  const WordBlock& words = call.words;
  for (std::int64_t row = 0; row < words.rows; ++row) {
    const std::int64_t from = row * words.stride, to = row * call.stride;
    for (std::int64_t j = 0; j < words.count; j += kWideLanes) {
      const auto lanes = static_cast<std::size_t>(std::min(kWideLanes, words.count - j));
      const auto low = LoadFirst(di, words.low + from + j, lanes);
      const auto high =
          hn::Add(LoadFirst(di, words.high + from + j, lanes), hn::ShiftRight<kExactRadix>(low));
      StoreFirst(high, di, call.high + to + j, lanes);
      StoreFirst(hn::And(low, mask), di, call.low + to + j, lanes);
    }
  }
}

void SumIntegers(IntegerSumCall& call) {
  const Wide d;
  const Word dw;
  const Reals magic = hn::Set(d, kMagic);
  auto total = hn::Zero(dw);
  ForEachScaled(
      call.x, call.count, call.scale, [&](std::int64_t /*i*/, std::int64_t /*left*/, Reals value) HWY_ATTR {
        total = hn::Add(total, hn::Sub(hn::BitCast(dw, hn::Add(value, magic)), hn::Set(dw, kMagicBits)));
      });
  call.high = 0;
  call.low = static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(dw, total)));
}

// Lanes run across the terms here: the sums are exact, so that their order does not matter.
void SumSquaredIntegers(IntegerSumCall& call) {
  const Wide d;
  const Int di;
  HWY_ALIGN std::int64_t high[kWideLanes] = {};
  HWY_ALIGN std::int64_t low[kWideLanes] = {};
  for (std::int64_t first = 0; first < call.count; first += kExactBlock * kWideLanes) {
    Reals highs = hn::Zero(d), lows = hn::Zero(d), boths = hn::Zero(d);
    ForEachScaled(call.x + first, std::min(kExactBlock * kWideLanes, call.count - first), call.scale,
                  [&](std::int64_t /*i*/, std::int64_t /*left*/, Reals value) HWY_ATTR {
                    const Halves halves = SplitInteger(value);
                    const Reals both = hn::Add(halves.high, halves.low);
                    highs = hn::MulAdd(halves.high, halves.high, highs);
                    lows = hn::MulAdd(halves.low, halves.low, lows);
                    boths = hn::MulAdd(both, both, boths);
                  });
    AddBlock(highs, lows, boths, high, low);
  }
  call.high = hn::GetLane(hn::SumOfLanes(di, hn::Load(di, high)));
  call.low = hn::GetLane(hn::SumOfLanes(di, hn::Load(di, low)));
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
