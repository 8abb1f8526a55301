// The kernels that need explicit fused multiply-adds, compiled once per SIMD target by kernels.cc. Lanes are
// rows (sum of squares), pairs (rotary embedding), key positions (scores) or outputs (weighted sums): never
// the index that is summed over.
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
#include "arithmetic/simd-inl.h"
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

// scores[j] = scale * sum over d of q[d] * keys[d][j], for kVectors vectors of positions.
template <int kVectors>
HWY_INLINE void Scores(const float* HWY_RESTRICT q, std::int64_t head_dim, const float* HWY_RESTRICT keys,
                       std::int64_t stride, float scale, float* HWY_RESTRICT scores) {
  const Lanes d;
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (std::int64_t i = 0; i < head_dim; ++i, keys += stride) {
    const Vector query = hn::Set(d, q[i]);
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = FusedMulAdd(query, hn::Load(d, keys + v * kLanes), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::Store(hn::Mul(sums[v], hn::Set(d, scale)), d, scores + v * kLanes);
}

// Scores of one query for the first `count` positions; the last vector may go beyond them, inside the
// padding.
void ScoreRow(const float* q, const AttentionTile& tile, std::int64_t count, float* scores) {
  constexpr int kWide = 4;
  std::int64_t j = 0;
  for (; j + kWide * kLanes <= tile.padded_positions; j += kWide * kLanes) {
    if (j >= count) return;
    Scores<kWide>(q, tile.head_dim, tile.keys + j, tile.padded_positions, tile.scale, scores + j);
  }
  for (; j < count; j += kLanes) {
    Scores<1>(q, tile.head_dim, tile.keys + j, tile.padded_positions, tile.scale, scores + j);
  }
}

// Columns [column, column + kVectors * kLanes) of the root of sum over positions of weights[p] * values[p].
template <int kVectors>
HWY_INLINE void WeighColumns(const float* HWY_RESTRICT weights, const AttentionTile& tile, std::int64_t count,
                             const MergeSchedule& schedule, std::int64_t column) {
  const Lanes d;
  float* stack = tile.stack + column;
  std::int64_t slot = 0;
  for (std::int64_t first = 0, block = 0; first < count; first += tile.key_block, ++block) {
    const std::int64_t last = std::min(count, first + tile.key_block);
    const float* HWY_RESTRICT row = tile.values + first * tile.value_width + column;
    Vector sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
    for (std::int64_t p = first; p < last; ++p, row += tile.value_width) {
      const Vector weight = hn::Set(d, weights[p]);
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = FusedMulAdd(weight, hn::Load(d, row + v * kLanes), sums[v]);
      }
    }
    slot = PushLeaf(sums, schedule.merges[static_cast<std::size_t>(block)], stack, tile.value_width, slot);
  }
}

// Entry 0 of tile.stack becomes the weighted sum of the first `count` rows of values.
void WeighValues(const float* weights, const AttentionTile& tile, std::int64_t count,
                 const MergeSchedule& schedule) {
  constexpr int kWide = 4;
  std::int64_t column = 0;
  for (; column + kWide * kLanes <= tile.value_width; column += kWide * kLanes) {
    WeighColumns<kWide>(weights, tile, count, schedule, column);
  }
  for (; column < tile.value_width; column += kLanes) WeighColumns<1>(weights, tile, count, schedule, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
