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
  FetchAhead inputs;
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
  FetchAhead weights = tile.weights, inputs = tile.inputs;
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
      inputs.Next();
      inputs.Next();
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

// kPanels panels times all rows of a block, the rows being cut into tiles of nearly equal height.
template <int kPanels>
class PanelGroup {
 public:
  PanelGroup(const GemmCall& call, std::int64_t first_row, std::int64_t rows, std::int64_t panel)
      : call_(call),
        first_row_(first_row),
        rows_(rows),
        panel_(panel),
        tiles_((rows + TileRows(kPanels) - 1) / TileRows(kPanels)),
        width_(std::min<std::int64_t>(kWidth, call.n - panel * kPanel)) {}

  // Stacks outlive a segment, so every tile has its own unless there is one segment only.
  void Run(Scratch& scratch) const {
    const LeafPlan& plan = *call_.plan;
    const bool shared = plan.segments.size() == 1;
    const std::int64_t stack_size = std::int64_t{plan.stack_depth} * TileRows(kPanels) * kWidth;
    float* stacks = scratch.floats(stack_size * (shared ? 1 : tiles_));
    for (const LeafSegment& segment : plan.segments) {
      for (std::int64_t t = 0; t < tiles_; ++t) RunTileOf(segment, t, stacks + (shared ? 0 : t * stack_size));
    }
  }

 private:
  static constexpr std::int64_t kWidth = kPanels * kPanel;

  void RunTileOf(const LeafSegment& segment, std::int64_t t, float* stack) const {
    const LeafPlan& plan = *call_.plan;
    const std::int64_t begin = first_row_ + rows_ * t / tiles_, end = first_row_ + rows_ * (t + 1) / tiles_;
    const bool finishes = segment.last_step == plan.steps.size();
    float* y = call_.y + begin * call_.y_stride + panel_ * kPanel;
    const Tile tile{.x = call_.x + begin * call_.x_stride + segment.first_column,
                    .x_stride = call_.x_stride,
                    .w = Weights(panel_, segment.first_column),
                    .panel_stride = call_.panel_stride,
                    .steps = plan.steps.data() + segment.first_step,
                    .steps_end = plan.steps.data() + segment.last_step,
                    .stack = stack,
                    .y = finishes && width_ == kWidth ? y : nullptr,
                    .y_stride = call_.y_stride,
                    .weights = WeightsAhead(segment, t),
                    .inputs = InputsAhead(segment, end)};
    kTileFunctions<kPanels>[static_cast<std::size_t>(end - begin)](tile);
    if (!finishes || width_ == kWidth) return;
    for (std::int64_t i = 0; i < end - begin; ++i)
      std::copy_n(stack + i * kWidth, width_, y + i * call_.y_stride);
  }

  const float* Weights(std::int64_t panel, std::int64_t column) const {
    return call_.w + panel * call_.panel_stride + column * kPanel;
  }

  // The weights that come after this segment: each tile fetches its share of the next segment or group.
  FetchAhead WeightsAhead(const LeafSegment& segment, std::int64_t t) const {
    const std::int64_t end = segment.first_column + segment.columns;
    const bool finishes = end == call_.plan->columns;
    const std::int64_t panel = finishes ? panel_ + kPanels : panel_;
    if ((panel + kPanels) * kPanel > call_.n) return {};
    const std::int64_t column = finishes ? 0 : end;
    const std::int64_t count = std::min(segment.columns, call_.plan->columns - column);
    return {.at = Weights(panel, column + count * t / tiles_),
            .end = Weights(panel, column + count * (t + 1) / tiles_),
            .stride = call_.panel_stride,
            .streams = kPanels};
  }

  // The inputs of the next tile, whose first row is `row`.
  FetchAhead InputsAhead(const LeafSegment& segment, std::int64_t row) const {
    const std::int64_t rows = std::min<std::int64_t>(TileRows(kPanels), first_row_ + rows_ - row);
    const float* at = call_.x + row * call_.x_stride + segment.first_column;
    if (rows <= 0) return {};
    return {
        .at = at, .end = at + segment.columns, .stride = call_.x_stride, .streams = static_cast<int>(rows)};
  }

  const GemmCall& call_;
  std::int64_t first_row_, rows_;
  std::int64_t panel_;
  std::int64_t tiles_;
  std::int64_t width_;  // outputs that exist
};

// Runs the widest group of at most kPanels panels that fits and returns how many panels it took.
template <int kPanels>
HWY_INLINE std::int64_t RunGroup(const GemmCall& call, std::int64_t first_row, std::int64_t rows,
                                 std::int64_t panel, Scratch& scratch) {
  if constexpr (kPanels > 1) {
    constexpr int kNarrower = kPanels > kGroupPanels ? kGroupPanels : kPanels - 1;
    const bool too_many_rows = kPanels > kGroupPanels && rows > kFewRows;
    const bool too_few_panels = (call.n + kPanel - 1) / kPanel < panel + kPanels;
    if (too_many_rows || too_few_panels) return RunGroup<kNarrower>(call, first_row, rows, panel, scratch);
  }
  PanelGroup<kPanels>(call, first_row, rows, panel).Run(scratch);
  return kPanels;
}

// Rows are taken in blocks that bound the memory of the stacks.
void Gemm(const GemmCall& call) {
  constexpr std::int64_t kBlockRows = 384;
  thread_local Scratch scratch;
  const std::int64_t blocks = (call.m + kBlockRows - 1) / kBlockRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first_row = call.m * block / blocks;
    const std::int64_t rows = call.m * (block + 1) / blocks - first_row;
    for (std::int64_t panel = 0; panel * kPanel < call.n;) {
      panel += RunGroup<kWidePanels>(call, first_row, rows, panel, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#endif
