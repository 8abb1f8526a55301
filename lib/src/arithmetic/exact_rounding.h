// The one rounding of arithmetic `exact`, on integers: the definition that the SIMD path must equal.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace shardcheck {

using Int128 = __int128;
using UInt128 = unsigned __int128;

/// 2^exponent for a normal f64.
constexpr double power_of_two(int exponent) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

/// Inverse of power_of_two.
constexpr int exponent_of(double power) noexcept {
  return static_cast<int>(std::bit_cast<std::uint64_t>(power) >> 52) - 1023;
}

/// Position of the highest set bit; value must not be 0.
inline int top_bit(UInt128 value) noexcept {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return high != 0 ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<std::uint64_t>(value));
}

/// The f32 nearest to (magnitude + sticky * epsilon) * 2^exponent, ties to even. With `sticky`, magnitude
/// must be at least 2^26, so that epsilon lies below the rounding position.
inline float round_magnitude(bool negative, UInt128 magnitude, bool sticky, int exponent) noexcept {
  if (magnitude == 0) return 0.0F;
  const int top = top_bit(magnitude);
  const int dropped = std::max(top - 23, -149 - exponent);  // bits below the last that an f32 keeps
  if (dropped > top + 1) return negative ? -0.0F : 0.0F;
  auto kept = static_cast<std::uint64_t>(magnitude);
  if (dropped > 0) {
    kept = dropped > top ? 0 : static_cast<std::uint64_t>(magnitude >> dropped);
    const UInt128 half = UInt128{1} << (dropped - 1);
    const bool below = sticky || (magnitude & (half - 1)) != 0;
    if ((magnitude & half) != 0 && (below || (kept & 1) != 0)) ++kept;
    exponent += dropped;
  }
  if (kept == 0) return negative ? -0.0F : 0.0F;
  const bool overflows = static_cast<int>(std::bit_width(kept)) + exponent > 128;
  const float value = overflows ? std::numeric_limits<float>::infinity()
                                : static_cast<float>(static_cast<double>(kept) * power_of_two(exponent));
  return negative ? -value : value;
}

constexpr Int128 join_words(std::int64_t high, std::int64_t low) noexcept {
  return (static_cast<Int128>(high) << 52) + low;
}

/// The f32 nearest to (high * 2^52 + low) * 2^exponent. Any int64 will do.
inline float round_words(std::int64_t high, std::int64_t low, int exponent) noexcept {
  const Int128 value = join_words(high, low);
  const bool negative = value < 0;
  return round_magnitude(negative, negative ? -static_cast<UInt128>(value) : static_cast<UInt128>(value),
                         false, exponent);
}

/// value = integer * 2^exponent, for a finite value.
struct Decoded {
  std::int64_t integer;
  int exponent;
};
inline Decoded decode(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const int biased = static_cast<int>((bits >> 23) & 0xff);
  const auto magnitude = static_cast<std::int64_t>((bits & 0x7fffff) | (biased != 0 ? 0x800000U : 0U));
  return {(bits >> 31) != 0 ? -magnitude : magnitude, std::max(biased, 1) - 150};
}

}  // namespace shardcheck
