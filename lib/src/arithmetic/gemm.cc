#include "shardcheck/arithmetic/gemm.h"

#include <fmt/format.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "arithmetic/ceil_div.h"
#include "arithmetic/even_cut.h"
#include "arithmetic/gemm_call.h"
#include "arithmetic/gemm_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic/gemm-inl.h"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h: the kernel for the static target.
#include "arithmetic/gemm-inl.h"

namespace shardcheck {

HWY_EXPORT(Gemm);
HWY_EXPORT(TargetBit);

namespace {

// Copies up to 16 rows into a panel, a few columns at a time so that both sides stay in cache.
template <typename T>
void pack_panel(const T* rows, std::int64_t count, std::int64_t k, std::int64_t stride, T* panel) {
  constexpr std::int64_t kColumns = 16;
  for (std::int64_t first = 0; first < k; first += kColumns) {
    const std::int64_t last = std::min(k, first + kColumns);
    for (std::int64_t j = 0; j < PackedWeights::kPanel; ++j) {
      for (std::int64_t c = first; c < last; ++c) {
        panel[c * PackedWeights::kPanel + j] = j < count ? rows[j * stride + c] : T{};
      }
    }
  }
}

// Throws unless [begin, end) lies in [0, size).
void require_range(std::string_view what, std::int64_t begin, std::int64_t end, std::int64_t size) {
  if (0 <= begin && begin <= end && end <= size) return;
  throw std::out_of_range(
      fmt::format("packed weights: {} [{}, {}) do not lie in [0, {})", what, begin, end, size));
}

// A kernel walks several panels at once, far apart: on small pages every step misses the translation cache.
// Only advice, and only before the first write.
void prefer_huge_pages([[maybe_unused]] std::span<std::byte> bytes) {
#ifdef __linux__
  constexpr std::uintptr_t kHugePage = 2 << 20;
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size()) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

void require_leaf(std::int64_t leaf) {
  if (leaf < 0) throw std::invalid_argument(fmt::format("reduction: leaf width {} is negative", leaf));
}

// Leaves that `k` local columns fill. Throws unless they lie inside the tree, with no short leaf before its
// end.
std::int64_t local_leaves(const Reduction& reduction, std::int64_t k) {
  require_leaf(reduction.leaf);
  if (reduction.leaf == 0) return 1;
  const std::int64_t count = ceil_div(k, reduction.leaf);
  const std::int64_t last = reduction.first + count;
  if (reduction.first < 0 || last > reduction.leaves) {
    throw std::invalid_argument(
        fmt::format("reduction: {} columns from leaf {} on do not lie in a tree over {} leaves of {} columns",
                    k, reduction.first, reduction.leaves, reduction.leaf));
  }
  if (k % reduction.leaf != 0 && last != reduction.leaves) {
    throw std::invalid_argument(fmt::format(
        "reduction: {} columns end inside leaf {} of {} (leaf width {}); only the last leaf of the "
        "tree may be short",
        k, last - 1, reduction.leaves, reduction.leaf));
  }
  return count;
}

void fill_zero(std::int64_t m, std::int64_t n, float* y, std::int64_t ldy) {
  for (std::int64_t i = 0; i < m; ++i) std::fill_n(y + i * ldy, n, 0.0F);
}

// The calling thread's; null for one thread.
std::unique_ptr<GemmTeam>& team() {
  thread_local std::unique_ptr<GemmTeam> own;
  return own;
}

GemmCall rows_of(GemmCall call, std::int64_t first, std::int64_t last) {
  call.x += first * call.x_stride;
  call.y += first * call.y_stride;
  call.m = last - first;
  return call;
}

GemmCall panels_of(GemmCall call, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kPanel = PackedWeights::kPanel;
  const std::int64_t begin = std::max(first * kPanel, call.skipped);
  const std::int64_t end = std::min(last * kPanel, call.skipped + call.n);
  call.w += first * call.panel_stride * (size_bits(call.dtype) / 8);
  call.y += begin - call.skipped;
  call.skipped = begin - first * kPanel;
  call.n = end - begin;
  return call;
}

// A product is cut over its panels of outputs, or over its rows when there are few panels.
void run_on_team(const GemmCall& call, GemmTeam& threads) {
  constexpr std::int64_t kPanels = 3, kRows = 24;  // a group of panels, a whole number of tiles of any height
  const std::int64_t panels = ceil_div(call.skipped + call.n, PackedWeights::kPanel);
  const std::int64_t tiles = ceil_div(call.m, kRows);
  const bool cut_panels = panels >= std::min<std::int64_t>(2 * threads.threads(), tiles);
  const EvenCut cut =
      cut_panels ? EvenCut(panels, kPanels, threads.threads()) : EvenCut(call.m, kRows, threads.threads());
  // Not on a worker: the target may be forced, and is looked up once.
  const auto kernel = &HWY_DYNAMIC_DISPATCH(Gemm);
  threads.run(cut.parts(), [&](int part) {
    const std::int64_t first = cut.begin(part), last = cut.begin(part + 1);
    kernel(cut_panels ? panels_of(call, first, last) : rows_of(call, first, last));
  });
}

bool& shares_every_product() {
  thread_local bool every = false;
  return every;
}

void run_call(const GemmCall& call) {
  // Multiply-adds that take about as long as waking the others.
  constexpr double kWorthSharing = 1 << 20;
  const double work =
      static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.plan->columns);
  if (team() == nullptr || (work < kWorthSharing && !shares_every_product()))
    return HWY_DYNAMIC_DISPATCH(Gemm)(call);
  run_on_team(call, *team());
}

// The root over columns [first, last) of x and w, a whole tree of its own: where a node splits depends on its
// number of leaves only, and a linear node is a left fold from leaf 0 or a single leaf.
void gemm_root(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w, TreeShape shape,
               std::int64_t leaf, std::int64_t first, std::int64_t last, float* y, std::int64_t ldy) {
  if (first == last) return fill_zero(m, w.n(), y, ldy);
  const GemmCall call{.x = x + first,
                      .x_stride = ldx,
                      .m = m,
                      .w = w.panel(0, first),
                      .dtype = w.dtype(),
                      .panel_stride = w.panel_stride(),
                      .skipped = w.skipped(),
                      .n = w.n(),
                      .plan = &leaf_plan(shape, last - first, leaf),
                      .y = y,
                      .y_stride = ldy};
  run_call(call);
}

// What the calling thread is asked about; not counted before, for reading a clock twice costs a tenth of the
// smallest products.
struct GemmAccount {
  bool counts = false;
  double seconds = 0.0;

  static GemmAccount& of_thread() {
    thread_local GemmAccount account;
    return account;
  }
};

// Adds the lifetime of the object to the calling thread's account.
class GemmClock {
 public:
  GemmClock() {
    if (account_.counts) start_ = Clock::now();
  }
  ~GemmClock() {
    if (account_.counts) account_.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  GemmClock(const GemmClock&) = delete;
  GemmClock& operator=(const GemmClock&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  GemmAccount& account_ = GemmAccount::of_thread();
  Clock::time_point start_;
};

struct SimdTarget {
  std::string name;
  std::int64_t bit;
};

// Found once, before any target is forced: Highway reports only the forced one afterwards.
const std::vector<SimdTarget>& runnable_targets() {
  static const std::vector<SimdTarget> targets = [] {
    std::vector<SimdTarget> found;
    for (const std::int64_t bit : hwy::SupportedAndGeneratedTargets())
      found.push_back({hwy::TargetName(bit), bit});
    return found;
  }();
  return targets;
}

}  // namespace

template <typename T>
void PackedWeights::pack(DType dtype, const T* weights, std::int64_t n, std::int64_t k, std::int64_t stride) {
  n_ = n;
  k_ = stored_k_ = k;
  storage_ = Tensor::uninitialized(dtype, {ceil_div(n, kPanel), k, kPanel});
  prefer_huge_pages(storage_.mutable_bytes());
  T* panels = storage_.mutable_as<T>().data();
  for (std::int64_t first = 0; first < n; first += kPanel) {
    pack_panel(weights + first * stride, std::min(kPanel, n - first), k, stride, panels + first * k);
  }
}

PackedWeights::PackedWeights(const float* weights, std::int64_t n, std::int64_t k, std::int64_t stride) {
  pack(DType::f32, weights, n, k, stride);
}

PackedWeights::PackedWeights(const Tensor& weights) {
  if (weights.rank() != 2 || !is_forward_dtype(weights.dtype())) {
    throw std::invalid_argument(fmt::format("packed weights: {} {}; allowed are f32, bf16 and f16 of rank 2",
                                            short_name(weights.dtype()), to_string(weights.shape())));
  }
  const std::int64_t n = weights.dim(0), k = weights.dim(1);
  if (weights.dtype() == DType::f32) {
    pack(DType::f32, weights.f32().data(), n, k, k);
  } else {
    pack(weights.dtype(), weights.as<std::uint16_t>().data(), n, k, k);
  }
}

PackedWeights PackedWeights::rows(std::int64_t first, std::int64_t count) const {
  // Not first + count: it may overflow.
  require_range("rows", first, first <= n_ && count <= n_ - first ? first + count : n_ + 1, n_);
  PackedWeights view = *this;
  view.first_row_ += first;
  view.n_ = count;
  return view;
}

PackedWeights PackedWeights::columns(std::int64_t begin, std::int64_t end) const {
  require_range("columns", begin, end, k_);
  PackedWeights view = *this;
  view.first_column_ += begin;
  view.k_ = end - begin;
  return view;
}

std::int64_t PackedWeights::bytes() const noexcept {
  return n_ == 0 ? 0 : ceil_div(skipped() + n_, kPanel) * kPanel * k_ * element_bytes();
}

const std::byte* PackedWeights::panel(std::int64_t index, std::int64_t column) const noexcept {
  const std::int64_t element =
      (first_row_ / kPanel + index) * panel_stride() + (first_column_ + column) * kPanel;
  return storage_.bytes().data() + element * element_bytes();
}

Reduction Reduction::whole(TreeShape shape, std::int64_t k, std::int64_t leaf) {
  return part(shape, k, leaf, 0, k);
}

Reduction Reduction::part(TreeShape shape, std::int64_t k, std::int64_t leaf, std::int64_t begin,
                          std::int64_t end) {
  require_leaf(leaf);
  if (begin < 0 || end < begin || k < end) {
    throw std::invalid_argument(
        fmt::format("reduction: columns [{}, {}) do not lie in a sum of length {}", begin, end, k));
  }
  const std::int64_t inner_begin = begin == k ? 0 : begin;  // the end of the sum is a boundary of every tree
  const std::int64_t inner_end = end == k ? 0 : end;
  const std::int64_t largest = std::gcd(inner_begin, inner_end);
  for (const std::int64_t boundary : {inner_begin, inner_end}) {
    if (leaf == 0 ? boundary == 0 : boundary % leaf == 0) continue;
    throw std::invalid_argument(fmt::format(
        "reduction: boundary {} of a sum of length {} is no multiple of leaf={}; the largest leaf that "
        "would do is {}",
        boundary, k, leaf, largest));
  }
  if (leaf == 0) return chain();
  return {.shape = shape, .leaf = leaf, .leaves = ceil_div(k, leaf), .first = ceil_div(begin, leaf)};
}

std::vector<TreeNode> nodes_of(const Reduction& reduction, std::int64_t k) {
  const std::int64_t count = local_leaves(reduction, k);
  if (reduction.leaf == 0) return {{0, 1}};
  return cover(reduction.shape, reduction.leaves, reduction.first, reduction.first + count);
}

void gemm(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
          const Reduction& reduction, float* y, std::int64_t ldy) {
  const std::int64_t count = local_leaves(reduction, w.k());
  if (reduction.leaf != 0 && count != reduction.leaves) {
    throw std::invalid_argument(fmt::format("gemm: leaves [{}, {}) are only part of a tree over {} leaves",
                                            reduction.first, reduction.first + count, reduction.leaves));
  }
  if (m <= 0 || w.n() == 0) return;
  const GemmClock clock;
  gemm_root(x, ldx, m, w, reduction.shape, reduction.leaf, 0, w.k(), y, ldy);
}

void gemm_nodes(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
                const Reduction& reduction, float* y) {
  gemm_nodes(x, ldx, m, w, reduction, nodes_of(reduction, w.k()), y);
}

void gemm_nodes(const float* x, std::int64_t ldx, std::int64_t m, const PackedWeights& w,
                const Reduction& reduction, std::span<const TreeNode> nodes, float* y) {
  if (m <= 0 || w.n() == 0) return;
  const GemmClock clock;
  for (const TreeNode node : nodes) {
    const std::int64_t first = (node.first - reduction.first) * reduction.leaf;
    const std::int64_t last =
        reduction.leaf == 0 ? w.k() : std::min(w.k(), (node.last - reduction.first) * reduction.leaf);
    gemm_root(x, ldx, m, w, reduction.shape, reduction.leaf, first, last, y, w.n());
    y += m * w.n();
  }
}

void share_every_gemm(bool every) { shares_every_product() = every; }

void set_gemm_threads(int threads) {
  if (threads < 1 || kMaxGemmThreads < threads) {
    throw std::invalid_argument(
        fmt::format("gemm: {} threads; allowed are 1 to {}", threads, kMaxGemmThreads));
  }
  if (threads == gemm_threads()) return;
  team().reset();
  if (threads > 1) team() = std::make_unique<GemmTeam>(threads);
}

int gemm_threads() { return team() == nullptr ? 1 : team()->threads(); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const SimdTarget& target : runnable_targets()) names.push_back(target.name);
  return names;
}

std::string simd_target_in_force() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(TargetBit)()); }

void force_simd_target(const std::string& name) {
  const std::vector<SimdTarget>& targets = runnable_targets();
  std::int64_t bit = 0;  // 0: what the processor has
  if (!name.empty()) {
    const auto found =
        std::find_if(targets.begin(), targets.end(), [&](const auto& t) { return t.name == name; });
    if (found == targets.end()) {
      std::string allowed;
      for (const SimdTarget& target : targets) allowed += " " + target.name;
      throw std::invalid_argument(
          fmt::format("SIMD target \"{}\" cannot run here; allowed are{}", name, allowed));
    }
    bit = found->bit;
  }
  hwy::SetSupportedTargetsForTest(bit);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

double take_gemm_seconds() {
  GemmAccount& account = GemmAccount::of_thread();
  account.counts = true;
  return std::exchange(account.seconds, 0.0);
}

}  // namespace shardcheck
