// The GEMM kernel, compiled once per SIMD target by gemm.cc: blocks, segments and groups of panels that keep
// what tiles share in the caches.
#if defined(SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#undef SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#else
#define SHARDCHECK_SRC_ARITHMETIC_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arithmetic/gemm_call.h"
#include "arithmetic/gemm_fetch.h"
#include "arithmetic/gemm_tile-inl.h"
#include "arithmetic/gemm_widen-inl.h"
#include "arithmetic/scratch.h"
#include "hwy/highway.h"
#include "shardcheck/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows times panels of outputs, finished before the next block starts.
struct Block {
  const GemmCall& call;
  std::int64_t first_row, rows;
  std::int64_t first_panel, last_panel;
  float* scratch;       // stack_depth entries of kMaxEntry, used by one tile after the other
  float* kept;          // kept_depth stack entries of every output
  const float* packed;  // inputs, segment after segment; null: read where they are
  float* widened;       // for a segment of kWidePanels panels; null when the weights are f32

  static std::int64_t ScratchFloats(const LeafPlan& plan) {
    return std::int64_t{plan.stack_depth} * kMaxEntry;
  }
  static std::int64_t KeptFloats(const LeafPlan& plan, std::int64_t rows, std::int64_t panels) {
    return rows * panels * kPanel * plan.kept_depth;
  }
  static std::int64_t PackedFloats(const LeafPlan& plan, std::int64_t rows) {
    return rows * kPackedStride * static_cast<std::int64_t>(plan.segments.size());
  }
  const float* PackedOf(std::int64_t segment) const { return packed + segment * rows * kPackedStride; }
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

  void Run() const {
    if constexpr (kPanels <= kLastPanels) {
      if (block_.packed != nullptr) return RunTiles<true>();
    }
    RunTiles<false>();
  }

 private:
  static constexpr std::int64_t kWidth = kPanels * kPanel;

  // No division inside the loop: what comes between two tiles keeps the multipliers waiting.
  template <bool kPacked>
  void RunTiles() const {
    const std::int64_t tiles = (block_.rows + TileRows(kPanels) - 1) / TileRows(kPanels);
    const std::int64_t height = block_.rows / tiles, higher = block_.rows % tiles;
    const bool narrow = first_ > 0 || last_ < kWidth;
    float* y = call_.y + block_.first_row * call_.y_stride + (panel_ * kPanel - call_.skipped + first_);
    FetchShares<kPacked> ahead(WeightsAhead(), InputsAhead<kPacked>(), tiles);
    Tile tile = FirstTile<kPacked>();
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t rows = t < higher ? height + 1 : height;
      tile.y = finishes_ && !narrow ? y : nullptr;
      tile.ahead = ahead.Next();
      kTileFunctions<kPanels, kPacked>[static_cast<std::size_t>(rows)](tile);
      if (finishes_ && narrow) StoreNarrow(tile.kept, rows, y);
      tile.x += rows * tile.x_stride;
      tile.kept += rows * kWidth * call_.plan->kept_depth;
      y += rows * call_.y_stride;
    }
  }

  std::int64_t SegmentIndex() const { return &segment_ - call_.plan->segments.data(); }

  template <bool kPacked>
  Tile FirstTile() const {
    const float* x = call_.x + block_.first_row * call_.x_stride + segment_.first_column;
    Tile tile{.x = kPacked ? block_.PackedOf(SegmentIndex()) : x,
              .x_stride = kPacked ? kPackedStride : call_.x_stride,
              .w = nullptr,
              .panel_stride = call_.panel_stride,
              .steps = call_.plan->steps.data() + segment_.first_step,
              .steps_end = call_.plan->steps.data() + segment_.last_step,
              .kept = block_.KeptOf(panel_),
              .kept_count = segment_.kept,
              .scratch = block_.scratch,
              .y = nullptr,
              .y_stride = call_.y_stride,
              .ahead = {}};
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

  // The group's part of the packed inputs that the next segment will read.
  template <bool kPacked>
  FetchAhead InputsAhead() const {
    if (!kPacked) return {};
    const float* x = block_.PackedOf(finishes_ ? 0 : SegmentIndex() + 1);
    const std::int64_t panels = block_.last_panel - block_.first_panel, done = panel_ - block_.first_panel;
    const auto at = [&](std::int64_t panel) { return x + block_.rows * panel / panels * kPackedStride; };
    return {.at = reinterpret_cast<const std::byte*>(at(done)),
            .end = reinterpret_cast<const std::byte*>(at(done + kPanels)),
            .stride = 0,
            .streams = 1};
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

// The inputs of `rows` rows from `first_row` on, as Block::packed has them; null when the copy would not pay.
const float* PackInputs(const GemmCall& call, std::int64_t first_row, std::int64_t rows,
                        std::int64_t panels) {
  thread_local Scratch packed;
  const std::int64_t floats = Block::PackedFloats(*call.plan, rows);
  if (rows < kPackedRows || panels < kPackedPanels || floats > kMostPackedFloats) return nullptr;
  float* const begin = packed.floats(floats);
  float* to = begin;
  for (const LeafSegment& segment : call.plan->segments) {
    const float* from = call.x + first_row * call.x_stride + segment.first_column;
    for (std::int64_t i = 0; i < rows; ++i, from += call.x_stride, to += kPackedStride)
      std::copy_n(from, segment.columns, to);
  }
  return begin;
}

// Blocks bound the memory of the stacks and let a segment of the inputs serve several groups of panels before
// it leaves the second-level cache.
void Gemm(const GemmCall& call) {
  constexpr std::int64_t kBlockRows = 384;
  constexpr std::int64_t kWidenedFloats = kWidePanels * LeafPlan::kSegmentColumns * kPanel;
  thread_local Scratch scratch, kept, widened;
  const std::int64_t panels = (call.skipped + call.n + kPanel - 1) / kPanel;
  const std::int64_t blocks = (call.m + kBlockRows - 1) / kBlockRows;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first_row = call.m * b / blocks;
    const std::int64_t rows = call.m * (b + 1) / blocks - first_row;
    const float* packed = PackInputs(call, first_row, rows, panels);
    // Whole groups of either kind.
    const std::int64_t block_panels = call.m <= kFewRows ? 8 : packed == nullptr ? 9 : 18;
    for (std::int64_t first = 0; first < panels; first += block_panels) {
      const std::int64_t last = std::min(panels, first + block_panels);
      const Block block{.call = call,
                        .first_row = first_row,
                        .rows = rows,
                        .first_panel = first,
                        .last_panel = last,
                        .scratch = scratch.floats(Block::ScratchFloats(*call.plan)),
                        .kept = kept.floats(Block::KeptFloats(*call.plan, rows, last - first)),
                        .packed = packed,
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
