#include "shardcheck/tolerance/comparator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "arithmetic/ceil_div.h"

namespace shardcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMostly = 0.9;
constexpr std::uint32_t kPoison = 0xFFFFFFFF;  // what Tensor::poisoned holds

void require_comparable(const Tensor& expected, const Tensor& actual) {
  if (expected.dtype() != DType::f32 || actual.dtype() != DType::f32) {
    throw std::invalid_argument("compare_logits: both tensors must be f32");
  }
  if (expected.shape() != actual.shape()) {
    throw std::invalid_argument("compare_logits: shapes " + to_string(expected.shape()) + " and " +
                                to_string(actual.shape()) + " differ");
  }
}

double absolute_difference(float expected, float actual) {
  if (!std::isfinite(expected) || !std::isfinite(actual)) return kInfinity;
  return std::fabs(static_cast<double>(actual) - static_cast<double>(expected));
}

/// Boyer and Moore's vote: the value of more than half of the elements, where there is one.
float majority_candidate(std::span<const float> values) {
  float candidate = 0.0F;
  std::int64_t lead = 0;
  for (const float value : values) {
    if (lead == 0) candidate = value;
    lead += value == candidate ? 1 : -1;
  }
  return candidate;
}

bool is_mostly_one_value(std::span<const float> values) {
  const auto count = std::ranges::count(values, majority_candidate(values));
  return static_cast<double>(count) >= kMostly * static_cast<double>(values.size());
}

/// A row-major matrix: one row per token, one column per vocabulary entry.
struct LogitsMatrix {
  std::span<const float> values;
  std::size_t rows, columns;

  bool same_rows(std::size_t first, std::size_t second, std::size_t count) const {
    return std::ranges::equal(values.subspan(first * columns, count * columns),
                              values.subspan(second * columns, count * columns));
  }
  bool same_columns(std::size_t first, std::size_t second, std::size_t count) const {
    for (std::size_t row = 0; row < rows; ++row) {
      const auto at = values.subspan(row * columns, columns);
      if (!std::ranges::equal(at.subspan(first, count), at.subspan(second, count))) return false;
    }
    return true;
  }
};

LogitsMatrix matrix_of(const Tensor& logits) {
  const auto columns = static_cast<std::size_t>(logits.rank() > 0 ? logits.shape().back() : 1);
  return {logits.f32(), logits.f32().size() / columns, columns};
}

/// Whether two blocks are equal when `extent` is cut in 2 to kMostBlocks parts; a shorter last one counts as
/// no block.
template <typename Same>
bool repeats_a_block(std::size_t extent, Same same) {
  constexpr std::size_t kMostBlocks = 8;
  for (std::size_t parts = 2; parts <= std::min(kMostBlocks, extent); ++parts) {
    const std::size_t size = ceil_div(extent, parts);
    for (std::size_t first = 0; first + 2 * size <= extent; first += size) {
      for (std::size_t second = first + size; second + size <= extent; second += size) {
        if (same(first, second, size)) return true;
      }
    }
  }
  return false;
}

std::string why_vacuous(const Tensor& logits) {
  const auto values = logits.f32();
  if (values.empty()) return "the expected output is empty";
  for (const float value : values) {
    if (std::bit_cast<std::uint32_t>(value) == kPoison)
      return "the expected output was not written everywhere";
    if (!std::isfinite(value)) return "the expected output holds a NaN or an infinity";
  }
  const bool is_constant = std::ranges::all_of(values, [&](float value) { return value == values.front(); });
  if (is_constant) return "the expected output is constant";
  if (is_mostly_one_value(values)) return "at least 90 % of the expected output is one value";
  const LogitsMatrix matrix = matrix_of(logits);
  const auto same_rows = [&](auto... place) { return matrix.same_rows(place...); };
  const auto same_columns = [&](auto... place) { return matrix.same_columns(place...); };
  if (repeats_a_block(matrix.rows, same_rows))
    return "two blocks of tokens have equal expected logits: exchanging them would not show";
  if (repeats_a_block(matrix.columns, same_columns))
    return "two blocks of the vocabulary have equal expected logits: exchanging them would not show";
  return {};
}

double lower_median(std::vector<float>& values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

/// 2 atan2(|u - v|, |u + v|) of the unit vectors: accurate for small angles, where acos of a dot product is
/// not.
double angle_between(std::span<const float> a, std::span<const float> b, double norm_a, double norm_b) {
  if (!(norm_a > 0.0) || !(norm_b > 0.0)) return norm_a == norm_b ? 0.0 : std::acos(0.0);
  double apart = 0.0;
  double together = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double u = static_cast<double>(a[i]) / norm_a;
    const double v = static_cast<double>(b[i]) / norm_b;
    apart += (u - v) * (u - v);
    together += (u + v) * (u + v);
  }
  return 2.0 * std::atan2(std::sqrt(apart), std::sqrt(together));
}

void measure_vectors(Comparison& result, std::span<const float> expected, std::span<const float> actual,
                     double squared_distance) {
  if (!std::isfinite(result.max_abs)) {
    result.relative_l2 = kInfinity;
    result.angle = std::acos(-1.0);
    return;
  }
  const double length = norm(expected);
  const double distance = std::sqrt(squared_distance);
  result.relative_l2 = distance == 0.0 ? 0.0 : (length > 0.0 ? distance / length : kInfinity);
  if (distance > 0.0) result.angle = angle_between(expected, actual, length, norm(actual));
}

}  // namespace

Comparison compare_logits(const Tensor& expected_tensor, const Tensor& actual_tensor) {
  require_comparable(expected_tensor, actual_tensor);
  const auto expected = expected_tensor.f32();
  const auto actual = actual_tensor.f32();
  Comparison result;
  result.vacuous = why_vacuous(expected_tensor);
  if (expected.empty()) return result;

  std::vector<float> differences(expected.size());
  double sum = 0.0;
  double squares = 0.0;
  double worst = -1.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = absolute_difference(expected[i], actual[i]);
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(actual[i])) {
      ++result.differing_bits;
    }
    differences[i] = static_cast<float>(difference);
    sum += difference;
    squares += difference * difference;
    if (difference > worst) {
      worst = difference;
      result.worst_index = static_cast<std::int64_t>(i);
    }
  }
  const auto at = static_cast<std::size_t>(result.worst_index);
  result.max_abs = worst;
  result.mean_abs = sum / static_cast<double>(expected.size());
  result.median_abs = lower_median(differences);
  result.expected = expected[at];
  result.actual = actual[at];
  result.worst_row = expected_tensor.rank() > 0 ? result.worst_index / expected_tensor.shape().back() : 0;
  measure_vectors(result, expected, actual, squares);
  return result;
}

RankComparison compare_ranks(const Tensor& expected, const std::vector<Tensor>& logits) {
  if (logits.empty()) throw std::invalid_argument("compare_ranks: there is no rank");
  RankComparison result{compare_logits(expected, logits.front()), 0, -1};
  for (std::size_t rank = 1; rank < logits.size(); ++rank) {
    if (logits[rank].same_bytes(logits.front())) continue;
    if (result.dissenting_rank < 0) result.dissenting_rank = static_cast<int>(rank);
    Comparison other = compare_logits(expected, logits[rank]);
    const std::int64_t differing = std::max(result.worst.differing_bits, other.differing_bits);
    if (other.max_abs > result.worst.max_abs) {
      result.worst = std::move(other);
      result.worst_rank = static_cast<int>(rank);
    }
    result.worst.differing_bits = differing;
  }
  return result;
}

}  // namespace shardcheck
