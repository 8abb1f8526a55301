// Highway helpers shared by every SIMD file: operations that must have the same bits on every target.
// Included once per target, in the manner of Highway's own -inl.h files.
#if defined(SHARDCHECK_SRC_ARITHMETIC_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_SIMD_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_SIMD_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_SIMD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// a * b + c with one rounding. Highway's MulAdd rounds twice on targets without FMA (SSE4, SSSE3, WASM and
/// the scalar fallback); there it is one std::fma per lane, slow but with the same bits.
template <class V>
HWY_INLINE V FusedMulAdd(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const hn::DFromV<V> d;
  using T = hn::TFromD<decltype(d)>;
  HWY_ALIGN T lanes_a[hn::MaxLanes(d)];
  HWY_ALIGN T lanes_b[hn::MaxLanes(d)];
  HWY_ALIGN T lanes_c[hn::MaxLanes(d)];
  hn::Store(a, d, lanes_a);
  hn::Store(b, d, lanes_b);
  hn::Store(c, d, lanes_c);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes_c[i] = std::fma(lanes_a[i], lanes_b[i], lanes_c[i]);
  return hn::Load(d, lanes_c);
#endif
}

/// c - a * b with one rounding.
template <class V>
HWY_INLINE V FusedNegMulAdd(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::NegMulAdd(a, b, c);
#else
  return FusedMulAdd(hn::Neg(a), b, c);
#endif
}

/// The first `count` lanes from `from` (count <= Lanes(d)), the others zero; reads nothing beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* from, std::size_t count) {
  if (count >= hn::Lanes(d)) return hn::LoadU(d, from);
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return hn::Load(d, lanes);
}

/// Stores the first `count` lanes (count <= Lanes(d)); writes nothing beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, T* to, std::size_t count) {
  if (count >= hn::Lanes(d)) return hn::StoreU(v, d, to);
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
}

/// fn(d, first, count) for consecutive runs of elements that cover [0, size): whole vectors of f32, then what
/// is left. To be used with LoadFirst and StoreFirst.
template <class Fn>
HWY_INLINE void ForEachVector(std::size_t size, Fn&& fn) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t first = 0;
  for (; first + lanes <= size; first += lanes) fn(d, first, lanes);
  if (first < size) fn(d, first, size - first);
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
