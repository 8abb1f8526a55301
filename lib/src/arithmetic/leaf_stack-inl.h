// Vectors of f32 for kernels that sum leaf by leaf, and the stack on which leaves meet.
// Included once per target, in the manner of Highway's own -inl.h files.
#if defined(SHARDCHECK_SRC_ARITHMETIC_LEAF_STACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_LEAF_STACK_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_LEAF_STACK_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_LEAF_STACK_INL_H_
#endif

#include <cstdint>

#include "arithmetic/kernel_calls.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kMaxLanes>;
using Vector = hn::Vec<Lanes>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Lanes()));

// Merges the sums of a leaf into the stack, whose entry `slot` they become: see MergeSchedule. Returns the
// number of entries then on the stack.
template <int kVectors>
HWY_INLINE std::int64_t PushLeaf(Vector (&sums)[kVectors], int merges, float* stack, std::int64_t entry_size,
                                 std::int64_t slot) {
  const Lanes d;
  for (; merges > 0; --merges) {
    --slot;
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(hn::Load(d, stack + slot * entry_size + v * kLanes), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, stack + slot * entry_size + v * kLanes);
  return slot + 1;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
