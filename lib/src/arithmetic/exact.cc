#include "shardcheck/arithmetic/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "arithmetic/ceil_div.h"
#include "arithmetic/exact_calls.h"
#include "arithmetic/exact_operand.h"
#include "arithmetic/exact_partial_builder.h"
#include "arithmetic/exact_rounding.h"

namespace shardcheck {

struct ExactWeights::Packed {
  const ExactKernel* kernel = nullptr;
  std::int64_t n = 0, k = 0;
  std::vector<float> values;        // [n, k], read again only where x or w is not finite
  std::vector<ExactOperand> slabs;  // at most kExactSlab columns each, at least one, all with the same tops
};

namespace {

constexpr std::int64_t kBlockRows = 192;
constexpr std::int64_t kBlockWords = 1 << 17;  // of inputs that are read once per panel: they stay in a cache

// Sums of a block of integer rows against one panel.
struct alignas(64) BlockSums {
  std::int64_t high[kBlockRows * kExactPanel];
  std::int64_t low[kBlockRows * kExactPanel];

  WordBlock words(std::int64_t rows, std::int64_t count) const {
    return {.high = high, .low = low, .stride = kExactPanel, .rows = rows, .count = count};
  }
};

struct Span {
  std::int64_t first, last;
};

// visit(first row, rows, panel, sums) for integer rows x panels; rows are cut into blocks of nearly equal
// height.
template <typename Visit>
void multiply(const ExactKernel& kernel, const ExactOperand& a, const ExactOperand& w, Span rows, Span panels,
              const Visit& visit) {
  BlockSums sums;
  const std::int64_t tallest =
      std::clamp<std::int64_t>(kBlockWords / (kernel.planes * a.k() + 1), 12, kBlockRows);
  const std::int64_t height = rows.last - rows.first, blocks = ceil_div(height, tallest);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = rows.first + height * block / blocks,
                       last = rows.first + height * (block + 1) / blocks;
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      kernel.panel({.a = a.words(first),
                    .a_sums = a.sums(first),
                    .rows = last - first,
                    .w = w.words(panel * kExactPanel),
                    .w_sums = w.sums(panel * kExactPanel),
                    .k = a.k(),
                    .high = sums.high,
                    .low = sums.low});
      visit(first, last - first, panel, sums);
    }
  }
}

std::int64_t leading_panels(const ExactOperand& w) { return w.first_further() / kExactPanel; }
std::int64_t panels_of(const ExactOperand& w) { return ceil_div(w.integer_rows(), kExactPanel); }

void multiply_and_round(const ExactKernel& kernel, const ExactOperand& a, const ExactOperand& w, float* y,
                        std::int64_t ldy) {
  multiply(kernel, a, w, {0, a.rows()}, {0, leading_panels(w)},
           [&](std::int64_t first, std::int64_t rows, std::int64_t panel, const BlockSums& sums) {
             const std::int64_t column = panel * kExactPanel;
             round_block({.words = sums.words(rows, std::min(kExactPanel, w.rows() - column)),
                          .row_scales = a.scales() + first,
                          .column_scales = w.scales() + column,
                          .y = y + first * ldy + column,
                          .y_stride = ldy});
           });
}

// One slab of columns of a product, with what is needed to put infinities in.
struct SlabProduct {
  const ExactKernel& kernel;
  const ExactOperand& a;
  const ExactOperand& w;
  const float* x;
  std::int64_t x_stride;
  const float* values;  // weights
  std::int64_t value_stride;

  ExactPartial sums() const {
    ExactPartial partial;
    ExactPartialBuilder::reset(partial, exponents(a), exponents(w));
    fill(ExactPartialBuilder(partial));
    return partial;
  }

 private:
  static std::vector<std::int32_t> exponents(const ExactOperand& operand) {
    std::vector<std::int32_t> all;
    for (std::int64_t r = 0; r < operand.rows(); ++r) all.push_back(operand.exponent(r));
    return all;
  }

  void fill(ExactPartialBuilder&& builder) const {
    add_leading_rows(builder);
    const auto deposit = [&](std::int64_t first, std::int64_t rows, std::int64_t panel,
                             const BlockSums& block) { add_further(first, rows, panel, block, builder); };
    multiply(kernel, a, w, {a.rows(), a.integer_rows()}, {0, panels_of(w)}, deposit);
    multiply(kernel, a, w, {0, a.rows()}, {leading_panels(w), panels_of(w)}, deposit);
    for (const std::int64_t i : a.nonfinite_rows()) {
      for (std::int64_t j = 0; j < w.rows(); ++j) add_special_products(i, j, builder);
    }
    for (const std::int64_t j : w.nonfinite_rows()) {
      for (std::int64_t i = 0; i < a.rows(); ++i) add_special_products(i, j, builder);
    }
  }

  void add_leading_rows(ExactPartialBuilder& builder) const {
    multiply(kernel, a, w, {0, a.rows()}, {0, leading_panels(w)},
             [&](std::int64_t first, std::int64_t rows, std::int64_t panel, const BlockSums& block) {
               const std::int64_t column = panel * kExactPanel, at = first * w.rows() + column;
               carry_block({.words = block.words(rows, std::min(kExactPanel, w.rows() - column)),
                            .high = builder.high(at),
                            .low = builder.low(at),
                            .stride = w.rows()});
             });
  }

  // Products in which at least one side is a further integer row.
  void add_further(std::int64_t first, std::int64_t rows, std::int64_t panel, const BlockSums& block,
                   ExactPartialBuilder& builder) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t c = 0; c < kExactPanel; ++c) {
        const std::int64_t v = panel * kExactPanel + c, at = i * kExactPanel + c;
        if (v >= w.integer_rows() || w.row_of(v) < 0 || (block.high[at] == 0 && block.low[at] == 0)) continue;
        builder.rest(a.row_of(first + i) * w.rows() + w.row_of(v))
            .add_words(block.high[at], block.low[at], a.exponent(first + i) + w.exponent(v));
      }
    }
  }

  // Adding one twice changes nothing: they are flags.
  void add_special_products(std::int64_t i, std::int64_t j, ExactPartialBuilder& builder) const {
    for (std::int64_t c = 0; c < a.k(); ++c) {
      const float p = x[i * x_stride + c], q = values[j * value_stride + c];
      if (!std::isfinite(p) || !std::isfinite(q)) builder.rest(i * w.rows() + j).add_product(p, q);
    }
  }
};

// Slabs of one row share its exponent, so that their sums merge by plain addition.
std::vector<std::int32_t> shared_tops(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t k,
                                      std::span<const std::int32_t> tops) {
  if (tops.empty() && k > kExactSlab) return row_tops(x, stride, rows, k);
  return {tops.begin(), tops.end()};
}

ExactOperand& activation_operand() {
  thread_local ExactOperand operand;
  return operand;
}

void sum_squares_slowly(const float* x, std::int64_t width, float* sum) {
  LongAccumulator total;
  for (std::int64_t j = 0; j < width; ++j) total.add_product(x[j], x[j]);
  *sum = total.round();
}

void sum_squares_of_row(const float* x, std::int64_t width, const RowScan& scan, float* sum) {
  const RowRange range = range_of_scan(scan, x, width);
  const int exponent = window_exponent(range.top);
  if (!range.finite || !fits_window(range, x, width, exponent)) return sum_squares_slowly(x, width, sum);
  LongAccumulator total;
  for (std::int64_t first = 0; first < width; first += kExactSlab) {
    IntegerSumCall call{.x = x + first,
                        .count = std::min(kExactSlab, width - first),
                        .scale = power_of_two(-exponent),
                        .high = 0,
                        .low = 0};
    sum_squared_integers(call);
    if (width <= kExactSlab) {
      *sum = round_words(call.high, call.low, 2 * exponent);
      return;
    }
    total.add_words(call.high, call.low, 2 * exponent);
  }
  *sum = total.round();
}

}  // namespace

std::vector<std::int32_t> row_tops(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t k) {
  std::vector<std::int32_t> tops;
  for (std::int64_t r = 0; r < rows; ++r) tops.push_back(range_of_row(x + r * stride, k).top);
  return tops;
}

ExactWeights::ExactWeights() : ExactWeights(nullptr, 0, 0, 0) {}
ExactWeights::~ExactWeights() = default;
ExactWeights::ExactWeights(ExactWeights&&) noexcept = default;
ExactWeights& ExactWeights::operator=(ExactWeights&&) noexcept = default;

ExactWeights::ExactWeights(const float* weights, std::int64_t n, std::int64_t k, std::int64_t stride,
                           std::span<const std::int32_t> tops)
    : packed_(std::make_unique<Packed>()) {
  require_tops(tops, n, "exact weights");
  packed_->kernel = &exact_kernel();
  packed_->n = n;
  packed_->k = k;
  packed_->values.reserve(static_cast<std::size_t>(n * k));
  for (std::int64_t j = 0; j < n; ++j) {
    packed_->values.insert(packed_->values.end(), weights + j * stride, weights + j * stride + k);
  }
  const std::vector<std::int32_t> shared = shared_tops(weights, stride, n, k, tops);
  for (std::int64_t first = 0; first == 0 || first < k; first += kExactSlab) {
    packed_->slabs.emplace_back().assign(*packed_->kernel, ExactOperand::Layout::panels, weights + first,
                                         stride, n, std::min(kExactSlab, k - first), shared);
  }
}

ExactWeights::ExactWeights(const Tensor& weights, std::span<const std::int32_t> tops) {
  if (weights.rank() != 2 || !is_forward_dtype(weights.dtype())) {
    throw std::invalid_argument(fmt::format("exact weights: {} {}; allowed are f32, bf16 and f16 of rank 2",
                                            short_name(weights.dtype()), to_string(weights.shape())));
  }
  const Tensor wide = weights.to(DType::f32);
  *this = ExactWeights(wide.f32().data(), wide.dim(0), wide.dim(1), wide.dim(1), tops);
}

std::int64_t ExactWeights::n() const noexcept { return packed_->n; }
std::int64_t ExactWeights::k() const noexcept { return packed_->k; }
const char* ExactWeights::kernel() const noexcept { return packed_->kernel->name; }

ExactPartial exact_partial(const float* x, std::int64_t ldx, std::int64_t m, const ExactWeights& w,
                           std::span<const std::int32_t> tops) {
  require_tops(tops, m, "exact partial");
  const ExactWeights::Packed& packed = w.packed();
  const std::vector<std::int32_t> shared = shared_tops(x, ldx, m, packed.k, tops);
  ExactOperand& a = activation_operand();
  ExactPartial total;
  for (std::size_t s = 0; s < packed.slabs.size(); ++s) {
    const std::int64_t first = static_cast<std::int64_t>(s) * kExactSlab;
    const ExactOperand& slab = packed.slabs[s];
    a.assign(*packed.kernel, ExactOperand::Layout::rows, x + first, ldx, m, slab.k(), shared);
    ExactPartial sums = SlabProduct{.kernel = *packed.kernel,
                                    .a = a,
                                    .w = slab,
                                    .x = x + first,
                                    .x_stride = ldx,
                                    .values = packed.values.data() + first,
                                    .value_stride = packed.k}
                            .sums();
    if (s == 0) {
      total = std::move(sums);
    } else {
      total.merge(sums);
    }
  }
  return total;
}

void exact_gemm(const float* x, std::int64_t ldx, std::int64_t m, const ExactWeights& w, float* y,
                std::int64_t ldy, std::span<const float> bias) {
  const ExactWeights::Packed& packed = w.packed();
  if (!bias.empty() && std::ssize(bias) != packed.n) {
    throw std::invalid_argument(
        fmt::format("exact gemm: {} bias values for {} outputs", bias.size(), packed.n));
  }
  if (m <= 0 || packed.n == 0) return;
  const ExactOperand& slab = packed.slabs.front();
  if (packed.slabs.size() == 1 && slab.plain() && bias.empty()) {
    ExactOperand& a = activation_operand();
    a.assign(*packed.kernel, ExactOperand::Layout::rows, x, ldx, m, packed.k, {});
    if (a.plain()) return multiply_and_round(*packed.kernel, a, slab, y, ldy);
  }
  ExactPartial partial = exact_partial(x, ldx, m, w);
  if (!bias.empty()) partial.add_bias(bias);
  partial.round(y, ldy);
}

void exact_sum_of_squares(const float* x, std::int64_t rows, std::int64_t width, float* sums) {
  std::vector<RowScan> scans(static_cast<std::size_t>(rows));
  scan_rows(x, width, rows, width, scans.data());
  for (std::int64_t i = 0; i < rows; ++i) {
    sum_squares_of_row(x + i * width, width, scans[static_cast<std::size_t>(i)], sums + i);
  }
}

LongAccumulator exact_sum_partial(std::span<const float> values) {
  LongAccumulator total;
  while (!values.empty()) {
    const auto slab = values.first(std::min(values.size(), static_cast<std::size_t>(kExactSlab)));
    values = values.subspan(slab.size());
    const RowRange range = range_of_row(slab.data(), std::ssize(slab));
    const int exponent = window_exponent(range.top);
    if (!range.finite || !fits_window(range, slab.data(), std::ssize(slab), exponent)) {
      for (const float value : slab) total.add(value);
      continue;
    }
    IntegerSumCall call{
        .x = slab.data(), .count = std::ssize(slab), .scale = power_of_two(-exponent), .high = 0, .low = 0};
    sum_integers(call);
    total.add_words(call.high, call.low, exponent);
  }
  return total;
}

float exact_sum(std::span<const float> values) { return exact_sum_partial(values).round(); }

}  // namespace shardcheck
