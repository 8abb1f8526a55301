// The kernels that need explicit fused multiply-adds, compiled once per SIMD target by kernels.cc. Lanes are
// rows (sum of squares) or pairs (rotary embedding): never the index that is summed over.
#if defined(SHARDCHECK_SRC_ARITHMETIC_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_KERNELS_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_KERNELS_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arithmetic/kernel_calls.h"
#include "arithmetic/leaf_stack-inl.h"
#include "arithmetic/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `stack` has room for schedule.stack_depth vectors; entry 0 ends as the sums of `rows` rows, at most kLanes.
HWY_INLINE void SumRowsOfSquares(const SumOfSquaresCall& call, const float* x, std::int64_t rows) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const auto last_row = hn::Set(di, static_cast<std::int32_t>(rows - 1));
  const auto offsets =
      hn::Mul(hn::Min(hn::Iota(di, 0), last_row), hn::Set(di, static_cast<std::int32_t>(call.width)));
  std::int64_t slot = 0;
  for (std::int64_t first = 0, l = 0; first < call.width; first += call.leaf, ++l) {
    const std::int64_t last = std::min(call.width, first + call.leaf);
    Vector sums[1] = {hn::Zero(d)};
    for (std::int64_t j = first; j < last; ++j) {
      const Vector values = hn::GatherIndex(d, x + j, offsets);
      sums[0] = FusedMulAdd(values, values, sums[0]);
    }
    slot = PushLeaf(sums, call.schedule->merges[static_cast<std::size_t>(l)], call.stack, kLanes, slot);
  }
}

void SumOfSquares(const SumOfSquaresCall& call) {
  for (std::int64_t row = 0; row < call.rows; row += kLanes) {
    const std::int64_t rows = std::min(kLanes, call.rows - row);
    SumRowsOfSquares(call, call.x + row * call.width, rows);
    std::copy_n(call.stack, rows, call.sums + row);
  }
}

// Rotates `count` pairs (a[i], b[i]) in place.
void RotateHalves(float* a, float* b, const float* cosine, const float* sine, std::int64_t count) {
  const Lanes d;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const auto left = static_cast<std::size_t>(std::min(kLanes, count - i));
    const Vector va = LoadFirst(d, a + i, left), vb = LoadFirst(d, b + i, left);
    const Vector vc = LoadFirst(d, cosine + i, left), vs = LoadFirst(d, sine + i, left);
    StoreFirst(FusedMulAdd(va, vc, hn::Neg(hn::Mul(vb, vs))), d, a + i, left);
    StoreFirst(FusedMulAdd(vb, vc, hn::Mul(va, vs)), d, b + i, left);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
