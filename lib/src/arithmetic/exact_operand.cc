#include "arithmetic/exact_operand.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "arithmetic/exact_rounding.h"

namespace shardcheck {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000U;

constexpr std::int64_t padded_to_panel(std::int64_t count) {
  return (count + kExactPanel - 1) / kExactPanel * kExactPanel;
}

// Any exponent will do for a row of zeros; the highest lets a merge keep the other side's.
int top_for(const RowRange& range, std::span<const std::int32_t> tops, std::int64_t row) {
  if (!tops.empty()) return std::max(range.top, tops[static_cast<std::size_t>(row)]);
  return range.zero ? kExactWindow + kHighestExponent : range.top;
}

// Words of one block of a row, plane by plane, to one column of a panel.
void spread_block(const double* block, std::int64_t planes, std::int64_t count, double* column) {
  for (std::int64_t plane = 0; plane < planes; ++plane, block += kExactBlock) {
    for (std::int64_t c = 0; c < count; ++c) column[(c * planes + plane) * kExactPanel] = block[c];
  }
}

std::vector<float> finite_part(const float* x, std::int64_t count) {
  std::vector<float> values(x, x + count);
  for (float& value : values) {
    if (!std::isfinite(value)) value = 0.0F;
  }
  return values;
}

}  // namespace

void require_tops(std::span<const std::int32_t> tops, std::int64_t rows, std::string_view what) {
  if (!tops.empty() && std::ssize(tops) != rows) {
    throw std::invalid_argument(
        fmt::format("{}: {} tops for {} rows; allowed are none or one per row", what, tops.size(), rows));
  }
  for (const std::int32_t top : tops) {
    if (top < kLowestExponent || top > 128) {
      throw std::invalid_argument(fmt::format("{}: top {}; allowed -149..128", what, top));
    }
  }
}

int top_of_magnitude(std::uint32_t magnitude) noexcept {
  const int biased = static_cast<int>(magnitude >> 23);
  return biased != 0 ? biased - 126 : static_cast<int>(std::bit_width(magnitude)) + kLowestExponent;
}

RowRange range_of_row(const float* x, std::int64_t count) {
  RowScan scan;
  scan_rows(x, count, 1, count, &scan);
  return range_of_scan(scan, x, count);
}

RowRange range_of_scan(RowScan scan, const float* x, std::int64_t count) {
  const bool finite = scan.largest < kInfinity;
  if (!finite) {
    const std::vector<float> values = finite_part(x, count);
    scan_rows(values.data(), count, 1, count, &scan);
  }
  // A smallest value of biased exponent b is a multiple of 2^(b-150), and so is every other.
  const int biased = static_cast<int>((scan.smallest_less_one + 1) >> 23);
  return {.top = top_of_magnitude(scan.largest),
          .lowest = std::max(biased, 1) - 150,
          .finite = finite,
          .zero = scan.largest == 0};
}

bool fits_window(const RowRange& range, const float* x, std::int64_t count, int exponent) {
  return range.zero || range.lowest >= exponent || all_integers(x, count, power_of_two(-exponent));
}

int window_exponent(int top) noexcept { return std::max(top - kExactWindow, kLowestExponent); }

void ExactOperand::assign(const ExactKernel& kernel, Layout layout, const float* x, std::int64_t stride,
                          std::int64_t rows, std::int64_t k, std::span<const std::int32_t> tops) {
  kernel_ = &kernel;
  planes_ = kernel.planes;
  rows_ = rows;
  k_ = k;
  first_further_ = layout == Layout::panels ? padded_to_panel(rows) : rows;
  choose_windows(x, stride, tops);

  words_per_row_ = layout == Layout::panels ? planes_ * k : row_words(planes_, k);
  const std::int64_t padded = padded_to_panel(integer_rows());
  scales_.assign(static_cast<std::size_t>(padded_to_panel(rows)), 1.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    scales_[static_cast<std::size_t>(r)] = power_of_two(exponent(r));
  }
  sums_.assign(static_cast<std::size_t>(padded), 0);
  words_ = reinterpret_cast<double*>(memory_.floats(2 * padded * words_per_row_));
  if (layout == Layout::panels) {
    encode_panels();
  } else {
    encode_rows();
  }
  patched_.clear();
}

void ExactOperand::choose_windows(const float* x, std::int64_t stride, std::span<const std::int32_t> tops) {
  windows_.clear();
  further_.clear();
  nonfinite_rows_.clear();
  scans_.resize(static_cast<std::size_t>(rows_));
  scan_rows(x, stride, rows_, k_, scans_.data());
  for (std::int64_t r = 0; r < rows_; ++r) {
    const float* values = x + r * stride;
    const RowRange range = range_of_scan(scans_[static_cast<std::size_t>(r)], values, k_);
    if (!range.finite) {
      nonfinite_rows_.push_back(r);
      values = patched_.emplace_back(finite_part(values, k_)).data();
    }
    const int exponent = window_exponent(top_for(range, tops, r));
    windows_.push_back({r, exponent, values});
    if (!fits_window(range, values, k_, exponent)) add_further_windows(r, exponent, values);
  }
  if (further_.empty()) return;
  windows_.resize(static_cast<std::size_t>(first_further_), {-1, 0, nullptr});
  windows_.insert(windows_.end(), further_.begin(), further_.end());
}

// What is left of each value after taking its nearest multiple of 2^exponent is an f32 again.
void ExactOperand::add_further_windows(std::int64_t row, int exponent, const float* values) {
  for (;;) {
    std::vector<float>& rest = patched_.emplace_back(values, values + k_);
    for (float& value : rest) {
      const double unit = power_of_two(exponent), x = static_cast<double>(value);
      value = static_cast<float>(x - std::nearbyint(x / unit) * unit);
    }
    const RowRange range = range_of_row(rest.data(), k_);
    if (range.zero) return;
    exponent = window_exponent(range.top);
    values = rest.data();
    further_.push_back({row, exponent, values});
    if (fits_window(range, values, k_, exponent)) return;
  }
}

void ExactOperand::encode_rows() {
  for (std::int64_t v = 0; v < integer_rows(); ++v) {
    EncodeCall call{.x = windows_[static_cast<std::size_t>(v)].values,
                    .count = k_,
                    .scale = power_of_two(-exponent(v)),
                    .words = words_ + v * words_per_row_,
                    .sum = 0};
    kernel_->encode(call);
    sums_[static_cast<std::size_t>(v)] = call.sum;
  }
}

// Encodes a row at a time and spreads its words over the panel; what no row fills is zero.
void ExactOperand::encode_panels() {
  thread_local Scratch scratch;
  double* row = reinterpret_cast<double*>(scratch.floats(2 * row_words(planes_, k_)));
  std::fill_n(words_, padded_to_panel(integer_rows()) * words_per_row_, 0.0);
  for (std::int64_t v = 0; v < integer_rows(); ++v) {
    const Window& window = windows_[static_cast<std::size_t>(v)];
    if (window.row < 0) continue;
    EncodeCall call{
        .x = window.values, .count = k_, .scale = power_of_two(-window.exponent), .words = row, .sum = 0};
    kernel_->encode(call);
    sums_[static_cast<std::size_t>(v)] = call.sum;
    const std::int64_t column = v / kExactPanel * kExactPanel * words_per_row_ + v % kExactPanel;
    for (std::int64_t block = 0; block < k_; block += kExactBlock) {
      spread_block(row + block * planes_, planes_, std::min(kExactBlock, k_ - block),
                   words_ + column + block * planes_ * kExactPanel);
    }
  }
}

}  // namespace shardcheck
