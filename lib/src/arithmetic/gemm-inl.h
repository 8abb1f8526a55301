// The GEMM kernel, compiled once per SIMD target by gemm.cc. A tile of rows x panels of 16 outputs lives in
// registers; its columns are streamed by a LeafPlan, and the stack of the plan lies in memory that stays in
// the first-level cache. Lanes are outputs: no lane ever meets another.
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
#include "arithmetic/scratch.h"
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
constexpr int kWidePanels = kLanes == 16 ? 8 : 2;   // for at most kFewRows rows
constexpr int kGroupPanels = kLanes == 16 ? 4 : 1;  // for more
constexpr int kFewRows = 2;

constexpr int TileRows(int panels) {
  if (panels > kGroupPanels) return kFewRows;
  return std::clamp(kAccumulators / (panels * kVectorsPerPanel), 1, kMaxRows);
}

// Cache lines to fetch into the second-level cache while a tile computes: line by line across `streams`
// arrays that lie `stride` floats apart. One or two lines at a time: a burst would keep the tile's own loads
// waiting.
struct FetchAhead {
  static constexpr std::int64_t kLine = 16;  // floats

  HWY_INLINE void Next() {
    if (at >= end) return;
    __builtin_prefetch(at + stream * stride, 0, 2);
    if (++stream < streams) return;
    stream = 0;
    at += kLine;
  }

  const float* at = nullptr;
  const float* end = nullptr;
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
  float* stack;
  float* y;  // where the last step's result goes; null: to the stack like every other
  std::ptrdiff_t y_stride;
  FetchAhead weights;  // what later tiles will read
};

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
    for (int j = 0; j < kVectors; ++j) sum[i][j] = FusedMulAdd(input, weights[j], sum[i][j]);
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
  constexpr int kUnroll = 4;
  const float* HWY_RESTRICT x = tile.x;
  const float* HWY_RESTRICT w = tile.w;
  FetchAhead weights = tile.weights;
  const std::ptrdiff_t x_stride = tile.x_stride, panel_stride = tile.panel_stride;
  for (const LeafStep* step = tile.steps; step != tile.steps_end; ++step) {
    float* entry = tile.stack + step->slot * kEntry;
    Vector sum[kRows][kVectors];
    StartChain(*step, entry, sum);
    int left = step->columns;
    for (; left >= kUnroll; left -= kUnroll, x += kUnroll, w += kUnroll * kPanel) {
      AddColumn(x, x_stride, w, panel_stride, sum);
      AddColumn(x + 1, x_stride, w + kPanel, panel_stride, sum);
      AddColumn(x + 2, x_stride, w + 2 * kPanel, panel_stride, sum);
      AddColumn(x + 3, x_stride, w + 3 * kPanel, panel_stride, sum);
      weights.Next();
    }
    for (; left > 0; --left, ++x, w += kPanel) AddColumn(x, x_stride, w, panel_stride, sum);
    for (int merge = 0; merge < step->merges; ++merge) {
      entry -= kEntry;
      AddStackEntry(entry, sum);
    }
    if (tile.y != nullptr && step + 1 == tile.steps_end) {
      StoreTile(sum, tile.y, tile.y_stride);
    } else {
      StoreTile(sum, entry, kVectors * kLanes);
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

// Rows times panels of outputs whose stacks are kept while all columns pass over them.
struct Block {
  const GemmCall& call;
  std::int64_t first_row, rows;
  std::int64_t first_panel, last_panel;
  float* stacks;  // see StackOf

  // Panels are kPanel * rows entries apart, so that groups of any width find their stacks behind each other.
  float* StackOf(std::int64_t panel, std::int64_t row) const {
    const std::int64_t before = (panel - first_panel) * rows + row;
    return stacks + before * kPanel * call.plan->stack_depth;
  }
};

// kPanels panels of a block over one segment of columns, the rows being cut into tiles of nearly equal
// height.
template <int kPanels>
class PanelGroup {
 public:
  PanelGroup(const Block& block, const LeafSegment& segment, std::int64_t panel)
      : block_(block),
        segment_(segment),
        panel_(panel),
        tiles_((block.rows + TileRows(kPanels) - 1) / TileRows(kPanels)),
        finishes_(segment.last_step == block.call.plan->steps.size()) {}

  void Run() const {
    for (std::int64_t t = 0; t < tiles_; ++t) {
      RunTileOf(block_.rows * t / tiles_, block_.rows * (t + 1) / tiles_, t);
    }
  }

 private:
  static constexpr std::int64_t kWidth = kPanels * kPanel;

  void RunTileOf(std::int64_t begin, std::int64_t end, std::int64_t t) const {
    const GemmCall& call = block_.call;
    const std::int64_t width = std::min<std::int64_t>(kWidth, call.n - panel_ * kPanel);
    float* stack = block_.StackOf(panel_, kPanels * begin);
    float* y = call.y + (block_.first_row + begin) * call.y_stride + panel_ * kPanel;
    const Tile tile{.x = call.x + (block_.first_row + begin) * call.x_stride + segment_.first_column,
                    .x_stride = call.x_stride,
                    .w = call.w + panel_ * call.panel_stride + segment_.first_column * kPanel,
                    .panel_stride = call.panel_stride,
                    .steps = call.plan->steps.data() + segment_.first_step,
                    .steps_end = call.plan->steps.data() + segment_.last_step,
                    .stack = stack,
                    .y = finishes_ && width == kWidth ? y : nullptr,
                    .y_stride = call.y_stride,
                    .weights = WeightsAhead(t)};
    kTileFunctions<kPanels>[static_cast<std::size_t>(end - begin)](tile);
    if (!finishes_ || width == kWidth) return;
    for (std::int64_t i = 0; i < end - begin; ++i)
      std::copy_n(stack + i * kWidth, width, y + i * call.y_stride);
  }

  // The weights that the next group will read: each tile fetches its share.
  FetchAhead WeightsAhead(std::int64_t t) const {
    const GemmCall& call = block_.call;
    std::int64_t panel = panel_ + kPanels, column = segment_.first_column, count = segment_.columns;
    if (panel >= block_.last_panel && !finishes_) {
      panel = block_.first_panel;
      column += segment_.columns;
      count = std::min(count, call.plan->columns - column);
    } else if (panel >= block_.last_panel) {
      column = 0;
      count = std::min(call.plan->columns, LeafPlan::kSegmentColumns);
    }
    if ((panel + kPanels) * kPanel > call.n) return {};
    const float* at = call.w + panel * call.panel_stride + column * kPanel;
    return {.at = at + count * t / tiles_ * kPanel,
            .end = at + count * (t + 1) / tiles_ * kPanel,
            .stride = call.panel_stride,
            .streams = kPanels};
  }

  const Block& block_;
  const LeafSegment& segment_;
  std::int64_t panel_;
  std::int64_t tiles_;
  bool finishes_;
};

// Runs the widest group of at most kPanels panels that fits and returns how many panels it took.
template <int kPanels>
HWY_INLINE std::int64_t RunGroup(const Block& block, const LeafSegment& segment, std::int64_t panel) {
  if constexpr (kPanels > 1) {
    constexpr int kNarrower = kPanels > kGroupPanels ? kGroupPanels : kPanels - 1;
    const bool too_many_rows = kPanels > kGroupPanels && block.rows > kFewRows;
    if (too_many_rows || block.last_panel < panel + kPanels)
      return RunGroup<kNarrower>(block, segment, panel);
  }
  PanelGroup<kPanels>(block, segment, panel).Run();
  return kPanels;
}

// Blocks bound the memory of the stacks and let a segment of the inputs serve several groups of panels before
// it leaves the second-level cache.
void Gemm(const GemmCall& call) {
  constexpr std::int64_t kBlockRows = 384, kBlockPanels = 16;
  thread_local Scratch stacks;
  const std::int64_t panels = (call.n + kPanel - 1) / kPanel;
  const std::int64_t blocks = (call.m + kBlockRows - 1) / kBlockRows;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first_row = call.m * b / blocks;
    const std::int64_t rows = call.m * (b + 1) / blocks - first_row;
    for (std::int64_t first = 0; first < panels; first += kBlockPanels) {
      const std::int64_t last = std::min(panels, first + kBlockPanels);
      float* memory = stacks.floats((last - first) * rows * kPanel * call.plan->stack_depth);
      const Block block{call, first_row, rows, first, last, memory};
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
