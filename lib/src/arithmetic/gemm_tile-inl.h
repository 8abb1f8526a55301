// A tile of rows x panels of 16 outputs in registers, compiled once per SIMD target: its columns are streamed
// by a LeafPlan, and the stack of the plan lies in memory that stays in the caches. Lanes are outputs: no
// lane ever meets another.
#if defined(SHARDCHECK_SRC_ARITHMETIC_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_GEMM_TILE_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_GEMM_TILE_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_GEMM_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "arithmetic/gemm_fetch.h"
#include "arithmetic/leaf_plan.h"
#include "arithmetic/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPanel = 16;
using Lanes = hn::CappedTag<float, kPanel>;
using Vector = hn::Vec<Lanes>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Lanes()));
constexpr int kVectorsPerPanel = kPanel / kLanes;

// Accumulators that leave room for one vector of weights per column and a broadcast input.
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64
constexpr int kAccumulators = 24;
#else
constexpr int kAccumulators = 12;
#endif
constexpr int kMaxRows = 12;
constexpr int kWidePanels = kLanes == 16 ? 8 : 2;  // for at most kFewRows rows
// For more. Three panels over a segment of columns fit the first-level cache beside the inputs; of the shapes
// with 24 accumulators, 8 rows x 3 panels is also the one that loads least per multiply-add.
constexpr int kGroupPanels = kLanes == 16 ? 3 : 1;
// When exactly so many are left: three would leave one alone, with too few accumulators to hide the latency
// of a multiply-add.
constexpr int kLastPanels = kLanes == 16 ? 4 : 1;
constexpr int kFewRows = 2;

// Inputs that many panels read are copied first, segment by segment, each row of one so many floats after the
// row before: rows whose distance is a power of two would share a few lines of every cache.
constexpr std::ptrdiff_t kPackedStride = LeafPlan::kSegmentColumns + 16;
constexpr std::int64_t kPackedRows =
    64;  // fewest whose tiles have time to fetch the next weights in one stream
constexpr std::int64_t kPackedPanels = 16;                         // fewest that repay the copy
constexpr std::int64_t kMostPackedFloats = std::int64_t{8} << 20;  // of one block of rows

constexpr int TileRows(int panels) {
  if (panels > kLastPanels) return kFewRows;
  return std::clamp(kAccumulators / (panels * kVectorsPerPanel), 1, kMaxRows);
}

// Most outputs of a tile.
constexpr int kMaxEntry = std::max(kAccumulators * kLanes, kFewRows* kWidePanels* kPanel);

// Inputs of one tile over one segment of columns.
struct Tile {
  const float* x;
  std::ptrdiff_t x_stride;
  const float* w;  // panel 0 of the tile at the first column of the segment
  std::ptrdiff_t panel_stride;
  const LeafStep* steps;
  const LeafStep* steps_end;
  float* kept;  // stack entries below `kept_count`: see LeafSegment
  std::int32_t kept_count;
  float* scratch;  // the others
  float* y;        // where the last step's result goes; null: to the stack like every other
  std::ptrdiff_t y_stride;
  FetchAhead ahead;  // what later tiles will read; one stream when the inputs are packed
};

// sum += input * weights with one rounding, in the register that holds the sum and in the order written: left
// to itself, g++ mixes columns, lets sums wander between registers, runs out and spills one in the innermost
// loop.
HWY_INLINE void AddProduct(Vector input, Vector weights, Vector& sum) {
#if HWY_ARCH_X86 && HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(input.raw), "v"(weights.raw));
#else
  sum = FusedMulAdd(input, weights, sum);
#endif
}

template <int kRows, int kVectors>
HWY_INLINE void AddColumn(const float* HWY_RESTRICT x, std::ptrdiff_t x_stride, const float* HWY_RESTRICT w,
                          std::ptrdiff_t panel_stride, Vector (&sum)[kRows][kVectors]) {
  const Lanes d;
  Vector weights[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    weights[j] = hn::Load(d, w + (j / kVectorsPerPanel) * panel_stride + (j % kVectorsPerPanel) * kLanes);
  }
  for (int i = 0; i < kRows; ++i) {
    const Vector input = hn::Set(d, x[i * x_stride]);
    for (int j = 0; j < kVectors; ++j) AddProduct(input, weights[j], sum[i][j]);
  }
}

template <int kRows, int kVectors>
HWY_INLINE void AddStackEntry(const float* HWY_RESTRICT left, Vector (&sum)[kRows][kVectors]) {
  const Lanes d;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = hn::Add(hn::Load(d, left + (i * kVectors + j) * kLanes), sum[i][j]);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void StoreTile(const Vector (&sum)[kRows][kVectors], float* HWY_RESTRICT out,
                          std::ptrdiff_t stride) {
  const Lanes d;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], d, out + i * stride + j * kLanes);
  }
}

template <int kRows, int kVectors>
HWY_INLINE void StartChain(const LeafStep& step, const float* HWY_RESTRICT entry,
                           Vector (&sum)[kRows][kVectors]) {
  const Lanes d;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = step.starts_leaf ? hn::Zero(d) : hn::Load(d, entry + (i * kVectors + j) * kLanes);
    }
  }
}

template <int kRows, int kPanels, bool kPacked>
HWY_NOINLINE void RunTile(const Tile& tile) {
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  constexpr int kEntry = kRows * kPanels * kPanel;
  static_assert(kEntry <= kMaxEntry);
  constexpr int kUnroll = 4;
  const float* HWY_RESTRICT x = tile.x;
  const float* HWY_RESTRICT w = tile.w;
  FetchAhead ahead = tile.ahead;
  const std::ptrdiff_t x_stride = kPacked ? kPackedStride : tile.x_stride;
  const std::ptrdiff_t panel_stride = tile.panel_stride;
  const auto entry = [&tile](std::int32_t slot) HWY_ATTR {
    return (slot < tile.kept_count ? tile.kept : tile.scratch) + slot * kEntry;
  };
  for (const LeafStep* step = tile.steps; step != tile.steps_end; ++step) {
    std::int32_t slot = step->slot;
    Vector sum[kRows][kVectors];
    StartChain(*step, entry(slot), sum);
    int left = step->columns;
    for (; left >= kUnroll; left -= kUnroll, x += kUnroll, w += kUnroll * kPanel) {
      AddColumn(x, x_stride, w, panel_stride, sum);
      AddColumn(x + 1, x_stride, w + kPanel, panel_stride, sum);
      AddColumn(x + 2, x_stride, w + 2 * kPanel, panel_stride, sum);
      AddColumn(x + 3, x_stride, w + 3 * kPanel, panel_stride, sum);
      if constexpr (kPacked) {
        ahead.NextOfOne();
      } else {
        ahead.Next();
      }
    }
    for (; left > 0; --left, ++x, w += kPanel) AddColumn(x, x_stride, w, panel_stride, sum);
    for (const std::int32_t last = slot - step->merges; slot > last;) AddStackEntry(entry(--slot), sum);
    if (tile.y != nullptr && step + 1 == tile.steps_end) {
      StoreTile(sum, tile.y, tile.y_stride);
    } else {
      StoreTile(sum, entry(slot), kVectors * kLanes);
    }
  }
}

using TileFunction = void (*)(const Tile&);

template <int kPanels, bool kPacked, int... kRows>
constexpr std::array<TileFunction, kMaxRows + 1> RowTable(std::integer_sequence<int, kRows...>) {
  return {nullptr, &RunTile<kRows + 1, kPanels, kPacked>...};
}

// Indexed by the number of rows.
template <int kPanels, bool kPacked>
constexpr std::array<TileFunction, kMaxRows + 1> kTileFunctions =
    RowTable<kPanels, kPacked>(std::make_integer_sequence<int, TileRows(kPanels)>());

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
