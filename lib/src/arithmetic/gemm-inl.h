// The GEMM kernel, compiled once per SIMD target by gemm.cc. A tile of rows x panels of 16 outputs lives in
// registers; its columns are streamed by a LeafPlan, and the stack of the plan lies in memory that stays in
// the caches. Lanes are outputs: no lane ever meets another.
#if defined(SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "arithmetic/gemm_call.h"
#include "arithmetic/gemm_widen-inl.h"
#include "arithmetic/scratch.h"
#include "arithmetic/simd-inl.h"
#include "hwy/highway.h"
#include "shardcheck/tensor/dtype.h"

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

constexpr int TileRows(int panels) {
  if (panels > kLastPanels) return kFewRows;
  return std::clamp(kAccumulators / (panels * kVectorsPerPanel), 1, kMaxRows);
}

// Most outputs of a tile.
constexpr int kMaxEntry = std::max(kAccumulators * kLanes, kFewRows* kWidePanels* kPanel);

// Cache lines to fetch into the second-level cache while a tile computes: line by line across `streams`
// arrays that lie `stride` bytes apart. One or two lines at a time: a burst would keep the tile's own loads
// waiting.
struct FetchAhead {
  static constexpr std::int64_t kLine = 64;  // bytes

  HWY_INLINE void Next() {
    if (at >= end) return;
    __builtin_prefetch(at + stream * stride, 0, 2);
    if (++stream < streams) return;
    stream = 0;
    at += kLine;
  }

  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  std::ptrdiff_t stride = 0;
  int streams = 0;
  int stream = 0;
};

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
  FetchAhead weights;  // what later tiles will read
};

// Ties an accumulator to its register: g++ otherwise renames them between unrolled columns, runs out and
// spills one in the innermost loop.
HWY_INLINE void PinToRegister([[maybe_unused]] Vector& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm("" : "+v"(v.raw));
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
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = FusedMulAdd(input, weights[j], sum[i][j]);
      PinToRegister(sum[i][j]);
    }
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

template <int kRows, int kPanels>
HWY_NOINLINE void RunTile(const Tile& tile) {
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  constexpr int kEntry = kRows * kPanels * kPanel;
  static_assert(kEntry <= kMaxEntry);
  constexpr int kUnroll = 4;
  const float* HWY_RESTRICT x = tile.x;
  const float* HWY_RESTRICT w = tile.w;
  FetchAhead weights = tile.weights;
  const std::ptrdiff_t x_stride = tile.x_stride, panel_stride = tile.panel_stride;
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
      weights.Next();
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

template <int kPanels, int... kRows>
constexpr std::array<TileFunction, kMaxRows + 1> RowTable(std::integer_sequence<int, kRows...>) {
  return {nullptr, &RunTile<kRows + 1, kPanels>...};
}

// Indexed by the number of rows.
template <int kPanels>
constexpr std::array<TileFunction, kMaxRows + 1> kTileFunctions =
    RowTable<kPanels>(std::make_integer_sequence<int, TileRows(kPanels)>());

// Rows times panels of outputs, finished before the next block starts.
struct Block {
  const GemmCall& call;
  std::int64_t first_row, rows;
  std::int64_t first_panel, last_panel;
  float* scratch;  // stack_depth entries of kMaxEntry, used by one tile after the other
  float* kept;     // kept_depth stack entries of every output
  float* widened;  // for a segment of kWidePanels panels; null when the weights are f32

  static std::int64_t ScratchFloats(const LeafPlan& plan) {
    return std::int64_t{plan.stack_depth} * kMaxEntry;
  }
  static std::int64_t KeptFloats(const LeafPlan& plan, std::int64_t rows, std::int64_t panels) {
    return rows * panels * kPanel * plan.kept_depth;
  }
  // Kept entries of the first tile of a group that begins with `panel`.
  float* KeptOf(std::int64_t panel) const {
    return kept + (panel - first_panel) * rows * kPanel * call.plan->kept_depth;
  }
};

// kPanels panels of a block over one segment of columns, the rows being cut into tiles of nearly equal
// height.
template <int kPanels>
class PanelGroup {
 public:
  PanelGroup(const Block& block, const LeafSegment& segment, std::int64_t panel)
      : block_(block),
        call_(block.call),
        segment_(segment),
        panel_(panel),
        first_(std::max<std::int64_t>(0, call_.skipped - panel * kPanel)),
        last_(std::min<std::int64_t>(kWidth, call_.skipped + call_.n - panel * kPanel)),
        finishes_(segment.last_step == call_.plan->steps.size()) {}

  // No division inside the loop: what comes between two tiles keeps the multipliers waiting.
  void Run() const {
    const std::int64_t tiles = (block_.rows + TileRows(kPanels) - 1) / TileRows(kPanels);
    const std::int64_t height = block_.rows / tiles, higher = block_.rows % tiles;
    const FetchAhead ahead = WeightsAhead();
    const std::int64_t lines = (ahead.end - ahead.at + FetchAhead::kLine - 1) / FetchAhead::kLine;
    const std::int64_t share = (lines + tiles - 1) / tiles * FetchAhead::kLine;
    const bool narrow = first_ > 0 || last_ < kWidth;
    float* y = call_.y + block_.first_row * call_.y_stride + (panel_ * kPanel - call_.skipped + first_);
    Tile tile = FirstTile(ahead);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t rows = t < higher ? height + 1 : height;
      tile.y = finishes_ && !narrow ? y : nullptr;
      tile.weights.end = std::min(tile.weights.at + share, ahead.end);
      kTileFunctions<kPanels>[static_cast<std::size_t>(rows)](tile);
      if (finishes_ && narrow) StoreNarrow(tile.kept, rows, y);
      tile.x += rows * tile.x_stride;
      tile.kept += rows * kWidth * call_.plan->kept_depth;
      tile.weights.at = tile.weights.end;
      y += rows * call_.y_stride;
    }
  }

 private:
  static constexpr std::int64_t kWidth = kPanels * kPanel;

  Tile FirstTile(const FetchAhead& ahead) const {
    Tile tile{.x = call_.x + block_.first_row * call_.x_stride + segment_.first_column,
              .x_stride = call_.x_stride,
              .w = nullptr,
              .panel_stride = call_.panel_stride,
              .steps = call_.plan->steps.data() + segment_.first_step,
              .steps_end = call_.plan->steps.data() + segment_.last_step,
              .kept = block_.KeptOf(panel_),
              .kept_count = segment_.kept,
              .scratch = block_.scratch,
              .y = nullptr,
              .y_stride = call_.y_stride,
              .weights = ahead};
    const std::byte* w = WeightsAt(panel_, segment_.first_column);
    if (call_.dtype == DType::f32) {
      tile.w = reinterpret_cast<const float*>(w);
    } else {
      tile.w = block_.widened;
      tile.panel_stride = segment_.columns * kPanel;
      Widen(reinterpret_cast<const std::uint16_t*>(w));
    }
    return tile;
  }

  const std::byte* WeightsAt(std::int64_t panel, std::int64_t column) const {
    return call_.w + (panel * call_.panel_stride + column * kPanel) * ElementBytes();
  }
  std::int64_t ElementBytes() const { return call_.dtype == DType::f32 ? 4 : 2; }

  // Once for all rows of the block: a copy of the segment that stays in the caches while the tiles read it.
  void Widen(const std::uint16_t* from) const {
    for (int panel = 0; panel < kPanels; ++panel) {
      const std::int64_t count = segment_.columns * kPanel;
      WidenAll(Lanes(), call_.dtype, from + panel * call_.panel_stride, static_cast<std::size_t>(count),
               block_.widened + panel * count);
    }
  }

  // y has room for some lanes of the first and of the last panel only: such tiles end on the stack.
  void StoreNarrow(const float* tile, std::int64_t rows, float* y) const {
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy(tile + i * kWidth + first_, tile + i * kWidth + last_, y + i * call_.y_stride);
  }

  // The weights that the next group will read, in all its panels.
  FetchAhead WeightsAhead() const {
    std::int64_t panel = panel_ + kPanels, column = segment_.first_column, count = segment_.columns;
    if (panel >= block_.last_panel && !finishes_) {
      panel = block_.first_panel;
      column += segment_.columns;
      count = std::min(count, call_.plan->columns - column);
    } else if (panel >= block_.last_panel) {
      column = 0;
      count = std::min(call_.plan->columns, LeafPlan::kSegmentColumns);
    }
    if ((panel + kPanels) * kPanel > call_.skipped + call_.n) return {};
    const std::byte* at = WeightsAt(panel, column);
    return {.at = at,
            .end = at + count * kPanel * ElementBytes(),
            .stride = call_.panel_stride * ElementBytes(),
            .streams = kPanels};
  }

  const Block& block_;
  const GemmCall& call_;
  const LeafSegment& segment_;
  std::int64_t panel_;
  std::int64_t first_, last_;  // outputs of the group that y has room for
  bool finishes_;
};

// Runs the widest suitable group of at most kPanels panels and returns how many panels it took.
template <int kPanels>
HWY_INLINE std::int64_t RunGroup(const Block& block, const LeafSegment& segment, std::int64_t panel) {
  if constexpr (kPanels > 1) {
    constexpr bool kForFewRows = kPanels > kLastPanels;
    constexpr bool kForTheLast = kPanels > kGroupPanels && !kForFewRows;
    constexpr int kNarrower = kForFewRows ? kLastPanels : kPanels - 1;
    const std::int64_t left = block.last_panel - panel;
    if (left < kPanels || (kForFewRows && block.rows > kFewRows) || (kForTheLast && left > kPanels)) {
      return RunGroup<kNarrower>(block, segment, panel);
    }
  }
  PanelGroup<kPanels>(block, segment, panel).Run();
  return kPanels;
}

std::int64_t TargetBit() { return HWY_TARGET; }

// Blocks bound the memory of the stacks and let a segment of the inputs serve several groups of panels before
// it leaves the second-level cache.
void Gemm(const GemmCall& call) {
  constexpr std::int64_t kBlockRows = 384;
  const std::int64_t block_panels = call.m <= kFewRows ? 8 : 9;  // whole groups of either kind
  constexpr std::int64_t kWidenedFloats = kWidePanels * LeafPlan::kSegmentColumns * kPanel;
  thread_local Scratch scratch, kept, widened;
  const std::int64_t panels = (call.skipped + call.n + kPanel - 1) / kPanel;
  const std::int64_t blocks = (call.m + kBlockRows - 1) / kBlockRows;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first_row = call.m * b / blocks;
    const std::int64_t rows = call.m * (b + 1) / blocks - first_row;
    for (std::int64_t first = 0; first < panels; first += block_panels) {
      const std::int64_t last = std::min(panels, first + block_panels);
      const Block block{.call = call,
                        .first_row = first_row,
                        .rows = rows,
                        .first_panel = first,
                        .last_panel = last,
                        .scratch = scratch.floats(Block::ScratchFloats(*call.plan)),
                        .kept = kept.floats(Block::KeptFloats(*call.plan, rows, last - first)),
                        .widened = call.dtype == DType::f32 ? nullptr : widened.floats(kWidenedFloats)};
      for (const LeafSegment& segment : call.plan->segments) {
        for (std::int64_t panel = first; panel < last;) panel += RunGroup<kWidePanels>(block, segment, panel);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
