// Rows of f32 as integer rows, in the layout of a kernel. Integer row r (below `rows()`) is the leading part
// of row r; what it cannot hold becomes further integer rows, from `first_further()` on.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "arithmetic/exact_calls.h"
#include "arithmetic/scratch.h"

namespace shardcheck {

/// Throws std::invalid_argument unless there are no tops or one per row, each in -149..128.
void require_tops(std::span<const std::int32_t> tops, std::int64_t rows, std::string_view what);

/// The smallest t >= -149 with magnitude < 2^t, for the bit pattern of a finite magnitude.
int top_of_magnitude(std::uint32_t magnitude) noexcept;

/// Every finite |x| of a row is below 2^top and a multiple of 2^lowest (often of more).
struct RowRange {
  int top;
  int lowest;
  bool finite;
  bool zero;  // no finite value but 0
};
RowRange range_of_row(const float* x, std::int64_t count);
/// The same from what a scan of the row has found.
RowRange range_of_scan(RowScan scan, const float* x, std::int64_t count);

/// The exponent that puts a row below 2^top into a window; and whether one window holds all of a finite row.
int window_exponent(int top) noexcept;
bool fits_window(const RowRange& range, const float* x, std::int64_t count, int exponent);

class ExactOperand {
 public:
  /// `rows`: integer rows one after the other (activations). `panels`: [panel, k, planes, 16] (weights).
  enum class Layout { rows, panels };

  /// Reads `rows` rows of k <= kExactSlab values; keeps no reference to them. Reuses its memory.
  void assign(const ExactKernel& kernel, Layout layout, const float* x, std::int64_t stride,
              std::int64_t rows, std::int64_t k, std::span<const std::int32_t> tops);

  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t k() const noexcept { return k_; }
  /// Further integer rows are [first_further(), integer_rows()); a panel layout starts a new panel for them.
  std::int64_t first_further() const noexcept { return first_further_; }
  std::int64_t integer_rows() const noexcept { return static_cast<std::int64_t>(windows_.size()); }

  /// Words of integer row v; in the panel layout v must be a multiple of 16.
  const double* words(std::int64_t v) const noexcept { return words_ + v * words_per_row_; }
  const std::int64_t* sums(std::int64_t v) const noexcept { return sums_.data() + v; }
  /// Row that integer row v belongs to; -1 for padding.
  std::int64_t row_of(std::int64_t v) const noexcept { return windows_[static_cast<std::size_t>(v)].row; }
  int exponent(std::int64_t v) const noexcept { return windows_[static_cast<std::size_t>(v)].exponent; }
  /// 2^exponent of the leading integer rows, padded to a multiple of 16.
  const double* scales() const noexcept { return scales_.data(); }
  /// Rows that hold an infinity or a NaN, ascending.
  std::span<const std::int64_t> nonfinite_rows() const noexcept { return nonfinite_rows_; }
  /// No further rows and nothing but finite values.
  bool plain() const noexcept { return integer_rows() == first_further_ && nonfinite_rows_.empty(); }

 private:
  struct Window {
    std::int64_t row;
    int exponent;
    const float* values;
  };

  void choose_windows(const float* x, std::int64_t stride, std::span<const std::int32_t> tops);
  void add_further_windows(std::int64_t row, int exponent, const float* values);
  void encode_rows();
  void encode_panels();

  const ExactKernel* kernel_ = nullptr;
  std::int64_t planes_ = 1, rows_ = 0, k_ = 0, first_further_ = 0, words_per_row_ = 0;
  std::vector<Window> windows_, further_;
  std::deque<std::vector<float>> patched_;  // rows that are not the caller's
  std::vector<std::int64_t> nonfinite_rows_, sums_;
  std::vector<double> scales_;
  std::vector<RowScan> scans_;
  Scratch memory_;
  double* words_ = nullptr;
};

}  // namespace shardcheck
