#include "shardcheck/arithmetic/functions.h"

#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic/functions.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target.
#include "arithmetic/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {

#define SHARDCHECK_ELEMENTWISE(NAME)                                                 \
  float NAME##One(float x) {                                                         \
    const hn::CappedTag<float, 1> d;                                                 \
    return hn::GetLane(NAME(d, hn::Set(d, x)));                                      \
  }                                                                                  \
  void NAME##Each(const float* in, float* out, std::size_t size) {                   \
    ForEachVector(size, [&](auto d, std::size_t first, std::size_t count) HWY_ATTR { \
      StoreFirst(NAME(d, LoadFirst(d, in + first, count)), d, out + first, count);   \
    });                                                                              \
  }

SHARDCHECK_ELEMENTWISE(Exp)
SHARDCHECK_ELEMENTWISE(Log)
SHARDCHECK_ELEMENTWISE(Sin)
SHARDCHECK_ELEMENTWISE(Cos)
SHARDCHECK_ELEMENTWISE(Sigmoid)
SHARDCHECK_ELEMENTWISE(Silu)
SHARDCHECK_ELEMENTWISE(Gelu)
SHARDCHECK_ELEMENTWISE(GeluTanh)
#undef SHARDCHECK_ELEMENTWISE

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardcheck {
namespace {

HWY_EXPORT(ExpOne);
HWY_EXPORT(ExpEach);
HWY_EXPORT(LogOne);
HWY_EXPORT(LogEach);
HWY_EXPORT(SinOne);
HWY_EXPORT(SinEach);
HWY_EXPORT(CosOne);
HWY_EXPORT(CosEach);
HWY_EXPORT(SigmoidOne);
HWY_EXPORT(SiluOne);
HWY_EXPORT(SiluEach);
HWY_EXPORT(GeluOne);
HWY_EXPORT(GeluEach);
HWY_EXPORT(GeluTanhOne);
HWY_EXPORT(GeluTanhEach);

void require_equal_sizes(std::span<const float> in, std::span<float> out) {
  if (in.size() != out.size())
    throw std::invalid_argument("elementwise function: " + std::to_string(in.size()) +
                                " elements in, room for " + std::to_string(out.size()));
}

// log x of a positive finite double: x = 2^n m, log m = 2 atanh((m - 1) / (m + 1)). |s| <= 0.1716, so that
// the series is below 2^-59 relative after s^21.
double log_f64(double x) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const std::uint64_t offset = bits - kSqrtHalf;
  const auto n = static_cast<double>(static_cast<std::int64_t>(offset) >> 52);
  const auto m = std::bit_cast<double>((offset & 0x000fffffffffffff) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 0.0;
  for (int k = 10; k >= 1; --k) series = std::fma(series, z, 1.0 / (2 * k + 1));
  const double log_m = std::fma(2.0 * s * z, series, 2.0 * s);
  const double low = std::fma(n, 0x1.abc9e3b39803fp-56, log_m);
  return std::fma(n, 0x1.62e42fefa39efp-1, low);
}

// e^x for |x| <= 200: x = n ln 2 + r, Taylor series to r^14 / 14! (2^-60 relative at |r| = ln 2 / 2).
double exp_f64(double x) noexcept {
  constexpr double kRound = 0x1.8p52;
  const double n = std::fma(x, 0x1.71547652b82fep+0, kRound) - kRound;
  double r = std::fma(-n, 0x1.62e42fefa39efp-1, x);
  r = std::fma(-n, 0x1.abc9e3b39803fp-56, r);
  double series = 1.0;
  for (int k = 14; k >= 1; --k) series = std::fma(series, r / k, 1.0);
  return series *
         std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

}  // namespace

float exp_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(ExpOne)(x); }
float log_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(LogOne)(x); }
float sin_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(SinOne)(x); }
float cos_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(CosOne)(x); }
float sigmoid_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(SigmoidOne)(x); }
float silu_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(SiluOne)(x); }
float gelu_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(GeluOne)(x); }
float gelu_tanh_f32(float x) noexcept { return HWY_DYNAMIC_DISPATCH(GeluTanhOne)(x); }

float rsqrt_f32(float x) noexcept {
  // The sign of the NaN of an invalid operation differs by processor.
  if (x < 0.0f) return std::numeric_limits<float>::quiet_NaN();
  return 1.0f / std::sqrt(x);
}

float pow_f32(float x, double y) noexcept {
  if (!(x > 0.0f) || x == std::numeric_limits<float>::infinity() || std::isnan(y))
    return std::numeric_limits<float>::quiet_NaN();
  if (x == 1.0f) return 1.0f;
  const double exponent = y * log_f64(static_cast<double>(x));
  // Beyond 200 the result is 0 or infinity in f32 anyway.
  return static_cast<float>(exp_f64(exponent < -200.0 ? -200.0 : exponent > 200.0 ? 200.0 : exponent));
}

std::uint32_t reduce_large_angle(float x, float& high, float& low) noexcept {
  // 2/pi after 32 zero bits. x = m 2^e; bits of weight 2^-k with k <= e - 2 add multiples of 4 and are
  // skipped, the 96 bits that follow give the quadrant and 62 bits of the fraction.
  static constexpr std::uint32_t kTwoOverPi[8] = {0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                                  0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint64_t m = (bits & 0x007fffffU) | 0x00800000U;
  const std::uint32_t skipped = ((bits >> 23) & 0xffU) - 150U - 2U + 32U;  // e - 2 + 32; at most 135
  const std::uint32_t word = skipped / 32;
  const std::uint32_t shift = skipped % 32;
  const auto window = [&](std::uint32_t i) {
    const std::uint64_t pair = (std::uint64_t{kTwoOverPi[word + i]} << 32) | kTwoOverPi[word + i + 1];
    return ((pair << shift) >> 32) & 0xffffffffU;
  };
  const std::uint64_t turns = m * ((window(0) << 32) | window(1)) + ((m * window(2)) >> 32);  // of 2^-62
  const std::uint64_t quadrant = (turns + (1ULL << 61)) >> 62;
  const auto fraction = static_cast<double>(static_cast<std::int64_t>(turns - (quadrant << 62)));
  const double r = fraction * 0x1.921fb54442d18p-62;  // pi/2 * 2^-62
  high = static_cast<float>(r);
  low = static_cast<float>(r - static_cast<double>(high));
  return static_cast<std::uint32_t>(quadrant) & 3U;
}

#define SHARDCHECK_SPAN_FORM(function, each)                       \
  void function(std::span<const float> in, std::span<float> out) { \
    require_equal_sizes(in, out);                                  \
    HWY_DYNAMIC_DISPATCH(each)(in.data(), out.data(), in.size());  \
  }
SHARDCHECK_SPAN_FORM(exp_f32, ExpEach)
SHARDCHECK_SPAN_FORM(log_f32, LogEach)
SHARDCHECK_SPAN_FORM(sin_f32, SinEach)
SHARDCHECK_SPAN_FORM(cos_f32, CosEach)
SHARDCHECK_SPAN_FORM(silu_f32, SiluEach)
SHARDCHECK_SPAN_FORM(gelu_f32, GeluEach)
SHARDCHECK_SPAN_FORM(gelu_tanh_f32, GeluTanhEach)
#undef SHARDCHECK_SPAN_FORM

}  // namespace shardcheck
#endif  // HWY_ONCE
