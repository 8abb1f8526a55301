// What arithmetic `exact` must equal: sums in integers of 1024 bits, rounded by the definition of f32.
#pragma once

#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "scalar_oracle.h"
#include "shardcheck/arithmetic/exact.h"

namespace shardcheck::oracle {

class ExactSum {
 public:
  void add_product(float a, float b) {
    const double product = static_cast<double>(a) * static_cast<double>(b);  // exact
    if (std::isfinite(product)) return add(product);
    nan_ |= std::isnan(product);
    (product > 0 ? plus_ : minus_) |= std::isinf(product);
  }

  float round() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (nan_ || (plus_ && minus_)) return std::numeric_limits<float>::quiet_NaN();
    if (plus_ || minus_) return plus_ ? kInfinity : -kInfinity;
    if (sum_ == 0) return 0.0F;
    const Integer magnitude = abs(sum_);
    const int unit = std::max(static_cast<int>(msb(magnitude)) - 23, kScale - 149);
    Integer kept = magnitude >> unit;
    const Integer twice_rest = (magnitude - (kept << unit)) << 1, one = Integer(1) << unit;
    if (twice_rest > one || (twice_rest == one && (kept & 1) == 1)) ++kept;
    const double value = std::ldexp(kept.convert_to<double>(), unit - kScale);
    const float rounded = value < 0x1p128 ? static_cast<float>(value) : kInfinity;
    return sum_ < 0 ? -rounded : rounded;
  }

 private:
  using Integer = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<
      1024, 1024, boost::multiprecision::signed_magnitude, boost::multiprecision::unchecked, void>>;
  static constexpr int kScale = 360;  // the sum is in units of 2^-360

  void add(double product) {
    int exponent = 0;
    const double fraction = std::frexp(product, &exponent);
    const auto integer = static_cast<std::int64_t>(std::ldexp(fraction, 53));
    sum_ += Integer(integer) * (Integer(1) << (exponent - 53 + kScale));
  }

  Integer sum_ = 0;
  bool nan_ = false, plus_ = false, minus_ = false;
};

/// Sum over k of a(k) * b(k).
template <typename A, typename B>
float exact_dot(std::int64_t k, const A& a, const B& b) {
  ExactSum sum;
  for (std::int64_t c = 0; c < k; ++c) sum.add_product(a(c), b(c));
  return sum.round();
}

/// Families of values that sums get wrong in different ways.
enum class Kind {
  normal,
  any_exponent,
  any_pattern,
  subnormal,
  small_integer,
  bf16,
  huge_and_tiny,
  cancelling
};
constexpr Kind kKinds[] = {Kind::normal,        Kind::any_exponent, Kind::any_pattern,   Kind::subnormal,
                           Kind::small_integer, Kind::bf16,         Kind::huge_and_tiny, Kind::cancelling};

inline float float_of_kind(Stream& stream, Kind kind) {
  const std::uint32_t bits = stream.next_u32(), sign = bits & 0x80000000U;
  const float unit = std::bit_cast<float>(0x3f800000U | (bits & 0x7fffff)) - 1.0F;
  switch (kind) {
    case Kind::normal:
    case Kind::cancelling:
      return random_values(stream, 1).front();
    case Kind::any_exponent:
      return std::isfinite(std::bit_cast<float>(bits)) ? std::bit_cast<float>(bits) : 1.0F;
    case Kind::any_pattern:  // an infinity or NaN is rare enough to leave most sums finite
      return stream.chance(1, 400) ? std::bit_cast<float>(0x7f800000U | sign | (bits & 1))
                                   : (unit - 0.5F) * (stream.chance(1, 8) ? 0.0F : 1.0F);
    case Kind::subnormal:
      return std::bit_cast<float>(sign | (bits & (stream.chance(1, 2) ? 0x7fffffU : 0x1ffffffU)));
    case Kind::small_integer:
      return static_cast<float>(stream.integer(-4097, 4097));
    case Kind::bf16:
      return bf16_to_f32(f32_to_bf16(random_values(stream, 1).front()));
    case Kind::huge_and_tiny:
      return (unit - 0.5F) * (stream.chance(1, 2) ? 1e38F : 1e-38F);
  }
  return 0.0F;
}

/// Rows of `k` values; under `cancelling` the second half of a row nearly undoes the first.
inline std::vector<float> values_of_kind(Stream& stream, Kind kind, std::int64_t rows, std::int64_t k) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * k; ++i) values.push_back(float_of_kind(stream, kind));
  if (kind != Kind::cancelling) return values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = k / 2; c < k / 2 * 2; ++c) {
      const float other = values[static_cast<std::size_t>(i * k + c - k / 2)];
      values[static_cast<std::size_t>(i * k + c)] = stream.chance(1, 9) ? std::nextafter(other, 0.0F) : other;
    }
  }
  return values;
}

/// Forces an integer kernel for the lifetime of the object.
class ForcedKernel {
 public:
  explicit ForcedKernel(const std::string& name) { force_exact_kernel(name); }
  ~ForcedKernel() { force_exact_kernel(""); }
  ForcedKernel(const ForcedKernel&) = delete;
  ForcedKernel& operator=(const ForcedKernel&) = delete;
};

}  // namespace shardcheck::oracle
