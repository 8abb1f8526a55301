#include "shardcheck/tolerance/comparator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace shardcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMostlyZero = 0.9;

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

std::string why_vacuous(std::span<const float> expected) {
  if (expected.empty()) return "the expected output is empty";
  std::size_t zeros = 0;
  bool constant = true;
  for (const float value : expected) {
    if (!std::isfinite(value)) return "the expected output holds a NaN or an infinity";
    zeros += value == 0.0F ? 1 : 0;
    constant = constant && value == expected.front();
  }
  if (constant) return "the expected output is constant";
  if (static_cast<double>(zeros) >= kMostlyZero * static_cast<double>(expected.size())) {
    return "at least 90 % of the expected output is zero";
  }
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
  result.vacuous = why_vacuous(expected);
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

}  // namespace shardcheck
