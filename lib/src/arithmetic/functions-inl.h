// exp, log, sine, cosine, sigmoid, silu and gelu on Highway vectors of f32. The same bodies are the scalar
// functions (a vector of one lane), so that the scalar and the SIMD forms cannot differ. Every step is one
// IEEE operation or one fused multiply-add, in the order written. Coefficients are minimax polynomials (Remez
// exchange in 113-bit arithmetic, then rounded to f32); the error given beside each is that of the rounded
// polynomial, relative to the function.
#if defined(SHARDCHECK_SRC_ARITHMETIC_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_FUNCTIONS_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_FUNCTIONS_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_FUNCTIONS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "arithmetic/simd-inl.h"

namespace shardcheck {
/// x = quadrant * pi/2 + high + low with |high| <= pi/4 (a little more by rounding), for finite x >= 2^20:
/// exact multiplication by as many bits of 2/pi as matter. Returns the quadrant modulo 4.
std::uint32_t reduce_large_angle(float x, float& high, float& low) noexcept;
}  // namespace shardcheck

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {

template <class D>
using IntTag = hn::RebindToSigned<D>;

/// x + kRoundToInt has the integer nearest to x in its low bits, for |x| <= 2^22.
constexpr float kRoundToInt = 0x1.8p23f;

/// c0 + x * (c1 + x * (c2 + ...)), innermost first.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Polynomial(D d, V /*x*/, float c0) {
  return hn::Set(d, c0);
}
template <class D, class V = hn::Vec<D>, typename... Rest>
HWY_INLINE V Polynomial(D d, V x, float c0, Rest... rest) {
  return FusedMulAdd(Polynomial(d, x, rest...), x, hn::Set(d, c0));
}

/// `result`, but where `x` is NaN that NaN made quiet: what the hardware would return differs by target.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V OrQuietNan(D d, V x, V result) {
  const IntTag<D> di;
  const V quiet = hn::BitCast(d, hn::Or(hn::BitCast(di, x), hn::Set(di, 0x00400000)));
  return hn::IfThenElse(hn::IsNaN(x), quiet, result);
}

/// `yes` where x has its sign bit set, -0 included. Highway's own mixes bits of both before SSE4.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V IfSignBit(D d, V x, V yes, V no) {
  const IntTag<D> di;
  const V sign = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(di, x)));
  return hn::IfThenElse(hn::MaskFromVec(sign), yes, no);
}

/// 2^n for -126 <= n <= 127.
template <class D>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, hn::Vec<IntTag<D>> n) {
  const IntTag<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

/// e^(x + low...) where x is no NaN (any value where it is). x = n ln 2 + r, |r| <= ln 2 / 2; `low`, if
/// given, is a rounding error of x.
template <class D, class V = hn::Vec<D>, typename... Low>
HWY_INLINE V ExpOrdered(D d, V x, Low... low) {
  const IntTag<D> di;
  const V one = hn::Set(d, 1.0f);
  const V round = hn::Set(d, kRoundToInt);
  // e^-104 rounds to 0 and e^89 to infinity.
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const V shifted = FusedMulAdd(clamped, hn::Set(d, 0x1.715476p+0f), round);
  const V n = hn::Sub(shifted, round);
  const V ln2_low = hn::Set(d, -0x1.05c61p-29f);
  const V high = FusedNegMulAdd(n, hn::Set(d, 0x1.62e43p-1f), clamped);  // exact
  V r = FusedNegMulAdd(n, ln2_low, high);
  ((r = hn::Add(r, low)), ...);
  const V q = Polynomial(d, r, 0x1p-1f, 0x1.555554p-3f, 0x1.55548ep-5f, 0x1.111272p-7f, 0x1.6d8dbp-10f,
                         0x1.9f081p-13f);  // (e^r - 1 - r) / r^2, 2^-29.8
  // high, not r, is the linear term: it has no rounding error.
  V tail = FusedNegMulAdd(n, ln2_low, hn::Mul(hn::Mul(r, r), q));
  ((tail = hn::Add(tail, low)), ...);
  const V mantissa = hn::Add(one, hn::Add(high, tail));
  // In two steps, of which the first is exact: n reaches -150 and 128.
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const auto half = hn::ShiftRight<1>(exponent);
  return hn::Mul(hn::Mul(mantissa, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(exponent, half)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  return OrQuietNan(d, x, ExpOrdered(d, x));
}

/// log of the edges of the domain, `result` inside it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LogEdges(D d, V x, V result) {
  const V zero = hn::Zero(d);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Lt(x, zero), nan, result);
  return OrQuietNan(d, x, result);
}

/// x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log x = n ln 2 + f - f^2/2 + f^3 q(f).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  const IntTag<D> di;
  const V zero = hn::Zero(d);
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p25f)), x);
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);
  const auto offset = hn::Sub(hn::BitCast(di, normal), sqrt_half);
  const V n = hn::Sub(hn::ConvertTo(d, hn::ShiftRight<23>(offset)),
                      hn::IfThenElse(subnormal, hn::Set(d, 25.0f), zero));
  const auto fraction = hn::Add(hn::And(offset, hn::Set(di, 0x007fffff)), sqrt_half);
  const V f = hn::Sub(hn::BitCast(d, fraction), hn::Set(d, 1.0f));
  const V q = Polynomial(d, f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4b6p-3f, -0x1.555c4ep-3f,
                         0x1.233768p-3f, -0x1.fc2208p-4f, 0x1.e6f06ap-4f, -0x1.de3c16p-4f,
                         0x1.1457aap-4f);  // 2^-28.2
  const V tail = hn::Mul(hn::Mul(f, f), FusedMulAdd(f, q, hn::Set(d, -0.5f)));
  // ln 2 is cut after 16 bits, so n * high is exact and high + f can be split without error.
  const V multiple = hn::Mul(n, hn::Set(d, 0x1.62e4p-1f));
  const V high = hn::Add(multiple, f);
  const V lost = hn::Sub(f, hn::Sub(high, multiple));
  const V low = FusedMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), hn::Add(lost, tail));
  return LogEdges(d, x, hn::Add(high, low));
}

/// |x| = quadrant * pi/2 + high + low.
template <class D>
struct ReducedAngle {
  hn::Vec<D> high;
  hn::Vec<D> low;
  hn::Vec<IntTag<D>> quadrant;
};

/// For 0 <= x <= 2^20. pi/2 is three f32 parts; n has at most 20 bits, so that the first step is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE ReducedAngle<D> ReduceAngle(D d, V x) {
  const IntTag<D> di;
  const V round = hn::Set(d, kRoundToInt);
  const V shifted = FusedMulAdd(x, hn::Set(d, 0x1.45f306p-1f), round);
  const V n = hn::Sub(shifted, round);
  const V first = FusedNegMulAdd(n, hn::Set(d, 0x1.921fb6p+0f), x);
  // n times the second part is product + product_low, taken from `first` by an exact two-sum.
  const V part = hn::Set(d, 0x1.777a5cp-25f);
  const V product = hn::Mul(n, part);
  const V product_low = FusedMulAdd(n, part, hn::Neg(product));
  const V high = hn::Add(first, product);
  const V back = hn::Sub(high, first);
  const V lost = hn::Add(hn::Sub(first, hn::Sub(high, back)), hn::Sub(product, back));
  const V low = FusedMulAdd(n, hn::Set(d, 0x1.ee59dap-50f), hn::Add(lost, product_low));
  return {high, low, hn::BitCast(di, shifted)};
}

/// Replaces the lanes of `reduced` whose angle is beyond 2^20.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE void ReduceLargeLanes(D d, V x, ReducedAngle<D>& reduced) {
  const IntTag<D> di;
  HWY_ALIGN float angle[hn::MaxLanes(d)];
  HWY_ALIGN float high[hn::MaxLanes(d)];
  HWY_ALIGN float low[hn::MaxLanes(d)];
  HWY_ALIGN std::int32_t quadrant[hn::MaxLanes(d)];
  hn::Store(x, d, angle);
  hn::Store(reduced.high, d, high);
  hn::Store(reduced.low, d, low);
  hn::Store(reduced.quadrant, di, quadrant);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i)
    if (angle[i] > 0x1p20f && angle[i] <= std::numeric_limits<float>::max())
      quadrant[i] = static_cast<std::int32_t>(reduce_large_angle(angle[i], high[i], low[i]));
  reduced = {hn::Load(d, high), hn::Load(d, low), hn::Load(di, quadrant)};
}

/// Sine and cosine of the same angles.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void SinCos(D d, V x, V& sine, V& cosine) {
  const IntTag<D> di;
  const V magnitude = hn::Abs(x);
  ReducedAngle<D> reduced = ReduceAngle(d, magnitude);
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(magnitude, hn::Set(d, 0x1p20f)))))
    ReduceLargeLanes(d, magnitude, reduced);
  const V r = reduced.high;
  const V z = hn::Mul(r, r);
  const V minus_half = hn::Set(d, -0.5f);

  // sin(r + low) = r + (r^3 s(z) + low (1 - z/2))
  const V s = Polynomial(d, z, -0x1.555556p-3f, 0x1.111108p-7f, -0x1.a00f7ap-13f, 0x1.6cd0a8p-19f);  // 2^-28
  const V low_cos = FusedMulAdd(hn::Mul(reduced.low, z), minus_half, reduced.low);
  const V sin_r = hn::Add(r, FusedMulAdd(hn::Mul(r, z), s, low_cos));

  // cos(r + low) = (1 - z/2) + (its rounding error + z^2 c(z) - r low)
  const V c = Polynomial(d, z, 0x1.55554ap-5f, -0x1.6c0c2ep-10f, 0x1.99ea04p-16f);  // 2^-32.7
  const V one = hn::Set(d, 1.0f);
  const V head = FusedMulAdd(z, minus_half, one);
  const V lost = FusedMulAdd(z, minus_half, hn::Sub(one, head));
  const V cos_r = hn::Add(head, FusedMulAdd(hn::Mul(z, z), c, FusedNegMulAdd(r, reduced.low, lost)));

  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(reduced.quadrant, hn::Set(di, 1)))));
  const auto two = hn::Set(di, 2);
  const V sin_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(reduced.quadrant, two)));
  const V cos_sign =
      hn::BitCast(d, hn::ShiftLeft<30>(hn::And(hn::Add(reduced.quadrant, hn::Set(di, 1)), two)));
  const V x_sign = hn::And(x, hn::SignBit(d));
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const auto infinite = hn::Eq(magnitude, hn::Set(d, std::numeric_limits<float>::infinity()));
  sine = hn::Xor(hn::IfThenElse(odd, cos_r, sin_r), hn::Xor(sin_sign, x_sign));
  cosine = hn::Xor(hn::IfThenElse(odd, sin_r, cos_r), cos_sign);
  sine = OrQuietNan(d, x, hn::IfThenElse(infinite, nan, sine));
  cosine = OrQuietNan(d, x, hn::IfThenElse(infinite, nan, cosine));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sin(D d, V x) {
  V sine, cosine;
  SinCos(d, x, sine, cosine);
  return sine;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Cos(D d, V x) {
  V sine, cosine;
  SinCos(d, x, sine, cosine);
  return cosine;
}

/// With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) for negative x. No overflow, no cancellation.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SigmoidOrdered(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpOrdered(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  return OrQuietNan(d, x, SigmoidOrdered(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  // -inf * 0 would be NaN; the limit is -0, which the lowest finite value gives.
  const V finite = hn::Max(x, hn::Set(d, std::numeric_limits<float>::lowest()));
  return OrQuietNan(d, x, hn::Mul(finite, SigmoidOrdered(d, x)));
}

/// t * Phi(-t) / exp(-t^2 / 2) for 0 <= t <= 13.5, Phi the normal distribution: t p(u) / (t + c) with
/// u = (t - c) / (t + c).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ScaledNormalTail(D d, V t) {
  const V c = hn::Set(d, 2.78125f);
  const V one = hn::Set(d, 1.0f);
  const V sum = hn::Add(t, c);
  const V rounded = hn::Div(hn::Sub(t, c), sum);
  // t - c - u (t + c), in terms without a rounding of t + c.
  const V residual = FusedNegMulAdd(rounded, t, FusedNegMulAdd(hn::Add(rounded, one), c, t));
  const V u = hn::Add(rounded, hn::Div(residual, sum));
  const V p = Polynomial(d, u, 0x1.70d2ep-1f, -0x1.ea83dp-2f, 0x1.81f5aap-3f, -0x1.4a9c24p-6f,
                         -0x1.068486p-6f, 0x1.ee32b6p-9f, 0x1.388026p-9f, -0x1.b64d44p-12f, -0x1.cfad36p-12f,
                         -0x1.057eccp-18f, 0x1.5b099p-15f);  // 2^-26.3
  return hn::Div(hn::Mul(t, p), sum);
}

/// x Phi(x): below zero as it stands, above as x - x Phi(-x). t^2 / 2 is high + low, so that exp loses
/// nothing.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  // Beyond 20 exp(-t^2 / 2) is 0: bounded, so that infinities do not meet it.
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 20.0f));
  const V half = hn::Mul(t, hn::Set(d, 0.5f));
  const V high = hn::Mul(t, half);
  const V minus_low = FusedNegMulAdd(t, half, high);
  const V e = ExpOrdered(d, hn::Neg(high), minus_low);
  const V scaled = ScaledNormalTail(d, t);
  const V result = IfSignBit(d, x, hn::Neg(hn::Mul(scaled, e)), FusedNegMulAdd(scaled, e, x));
  return OrQuietNan(d, x, result);
}

/// x / (1 + exp(-w)), w = x (c0 + c1 x^2) with c0 = 2 sqrt(2/pi), c1 = 0.044715 c0; |w| is high + low.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanh(D d, V x) {
  // Beyond 20 exp(-|w|) is 0.
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 20.0f));
  const V c0 = hn::Set(d, 0x1.988454p+0f);
  const V c1 = hn::Set(d, 0x1.2444f2p-4f);
  const V square = hn::Mul(t, t);
  const V square_low = FusedMulAdd(t, t, hn::Neg(square));
  const V product = hn::Mul(square, c1);
  const V product_low = FusedMulAdd(square_low, c1, FusedMulAdd(square, c1, hn::Neg(product)));
  const V constants_low = FusedMulAdd(square, hn::Set(d, 0x1.49b16ap-29f), hn::Set(d, -0x1.857936p-25f));
  // An exact two-sum.
  const V slope = hn::Add(product, c0);
  const V back = hn::Sub(slope, product);
  const V cut = hn::Add(hn::Sub(product, hn::Sub(slope, back)), hn::Sub(c0, back));
  const V slope_low = hn::Add(cut, hn::Add(product_low, constants_low));
  const V high = hn::Mul(t, slope);
  const V low = FusedMulAdd(t, slope_low, FusedMulAdd(t, slope, hn::Neg(high)));
  const V e = ExpOrdered(d, hn::Neg(high), hn::Neg(low));
  const V numerator = IfSignBit(d, x, hn::Neg(hn::Mul(t, e)), x);
  return OrQuietNan(d, x, hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e)));
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
