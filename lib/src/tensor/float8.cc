#include "shardcheck/tensor/float8.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace shardcheck {
namespace {

constexpr std::uint32_t kF32Infinity = 0x7f800000;
constexpr std::uint32_t kF32QuietNan = 0x7fc00000;

struct Format {
  std::uint32_t fraction_bits;
  std::uint32_t bias;
  std::uint32_t largest;   // code of the largest finite magnitude
  std::uint32_t infinity;  // its code; above every code when the format has none
  std::uint32_t nan;       // the code of a NaN made by rounding
};
constexpr Format kE4M3{3, 7, 0x7e, 0x100, 0x7f};
constexpr Format kE5M2{2, 15, 0x7b, 0x7c, 0x7e};

float decode(const Format& format, std::uint8_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80U) << 24;
  const std::uint32_t code = bits & 0x7fU;
  if (code > format.largest)
    return std::bit_cast<float>(sign | (code == format.infinity ? kF32Infinity : kF32QuietNan));
  const std::uint32_t shift = 23 - format.fraction_bits;
  if (code >> format.fraction_bits != 0)
    return std::bit_cast<float>(sign | ((code << shift) + ((127 - format.bias) << 23)));
  // Subnormal: a small integer times the value of the lowest bit, a power of two; the product is exact.
  const auto unit = std::bit_cast<float>((128 - format.bias - format.fraction_bits) << 23);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(code) * unit));
}

/// `value` without its lowest `drop` bits (1..31), rounded to nearest, ties to even.
std::uint32_t shifted_to_even(std::uint32_t value, std::uint32_t drop) noexcept {
  const std::uint32_t half_minus_one = (1U << (drop - 1)) - 1;
  return (value + half_minus_one + ((value >> drop) & 1U)) >> drop;
}

std::uint8_t encode(const Format& format, float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > kF32Infinity) return static_cast<std::uint8_t>(sign | format.nan);
  const std::uint32_t shift = 23 - format.fraction_bits;
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t smallest_normal = 128 - format.bias;
  std::uint32_t code = 0;
  if (exponent >= smallest_normal) {
    code = shifted_to_even(magnitude, shift) - ((smallest_normal - 1) << format.fraction_bits);
  } else if (const std::uint32_t drop = shift + smallest_normal - exponent; drop <= 25) {
    // Below half of the smallest subnormal, with a larger drop, everything rounds to zero.
    code = shifted_to_even((magnitude & 0x7fffffU) | 0x800000U, drop);
  }
  return static_cast<std::uint8_t>(sign | std::min(code, format.largest));
}

[[noreturn]] void refuse(DType dtype) {
  throw std::invalid_argument("no 8-bit conversion for dtype " + std::string(short_name(dtype)));
}

}  // namespace

float e4m3_to_f32(std::uint8_t bits) noexcept { return decode(kE4M3, bits); }
float e5m2_to_f32(std::uint8_t bits) noexcept { return decode(kE5M2, bits); }

float e8m0_to_f32(std::uint8_t bits) noexcept {
  if (bits == 0xff) return std::bit_cast<float>(kF32QuietNan);
  return std::bit_cast<float>(bits == 0 ? 0x00400000U : static_cast<std::uint32_t>(bits) << 23);
}

std::uint8_t f32_to_e4m3(float value) noexcept { return encode(kE4M3, value); }
std::uint8_t f32_to_e5m2(float value) noexcept { return encode(kE5M2, value); }

float f8_to_f32(DType dtype, std::uint8_t bits) {
  if (dtype == DType::f8_e4m3) return e4m3_to_f32(bits);
  if (dtype == DType::f8_e5m2) return e5m2_to_f32(bits);
  if (dtype == DType::f8_e8m0) return e8m0_to_f32(bits);
  refuse(dtype);
}

std::uint8_t f32_to_f8(DType dtype, float value) {
  if (dtype == DType::f8_e4m3) return f32_to_e4m3(value);
  if (dtype == DType::f8_e5m2) return f32_to_e5m2(value);
  refuse(dtype);
}

}  // namespace shardcheck
