// Exact widening of 16-bit values, compiled once per SIMD target.
#if defined(SHARDCHECK_SRC_ARITHMETIC_GEMM_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_GEMM_WIDEN_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_GEMM_WIDEN_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_GEMM_WIDEN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "shardcheck/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The values of Lanes(d) bf16 or f16 patterns.
template <class D>
HWY_INLINE hn::Vec<D> Widen(D d, DType dtype, const std::uint16_t* HWY_RESTRICT from) {
  const hn::Rebind<std::uint16_t, D> d16;
  if (dtype == DType::bf16) {
    const hn::RebindToUnsigned<D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::Load(d16, from))));
  }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::BitCast(half, hn::Load(d16, from)));
#else  // Highway's own widening is not exact at infinity there
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f16_to_f32(from[i]);
  return hn::Load(d, lanes);
#endif
}

// Widens `count` values, a multiple of Lanes(d); both sides are aligned to their vectors.
template <class D>
HWY_INLINE void WidenAll(D d, DType dtype, const std::uint16_t* HWY_RESTRICT from, std::size_t count,
                         float* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::Store(Widen(d, dtype, from + i), d, to + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
