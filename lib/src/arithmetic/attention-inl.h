// The kernels of attention, compiled once per SIMD target by attention.cc. Lanes are key positions (scores)
// or outputs (weighted sums): never the index that is summed over.
#if defined(SHARDCHECK_SRC_ARITHMETIC_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_ATTENTION_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_ATTENTION_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arithmetic/attention_calls.h"
#include "arithmetic/leaf_stack-inl.h"
#include "arithmetic/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// scores[j] = fma(slope, distance + j, scores[j]).
void AddSlope(float slope, std::int64_t distance, std::int64_t count, float* scores) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const Vector factor = hn::Set(d, slope);
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const auto distances = hn::Add(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(distance + j)));
    const Vector biased = FusedMulAdd(factor, hn::ConvertTo(d, distances), hn::Load(d, scores + j));
    hn::Store(biased, d, scores + j);
  }
}

// Columns [column, column + kVectors * kLanes) of the nodes of sum over positions of weights[p] * values[p].
template <int kVectors>
HWY_INLINE void WeighColumns(const float* HWY_RESTRICT weights, const AttentionTile& tile, std::int64_t count,
                             const MergeSchedule& schedule, std::int64_t column) {
  const Lanes d;
  float* stack = tile.stack + column;
  std::int64_t slot = 0;
  for (std::int64_t first = 0, end = tile.first_block, block = 0; first < count; ++block) {
    const std::int64_t last = std::min(count, end);
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
    first = end;
    end += tile.key_block;
  }
}

// The entries of tile.stack become the nodes that `schedule` leaves of the weighted sum of the first `count`
// rows of values.
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
