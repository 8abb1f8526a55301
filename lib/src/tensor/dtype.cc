#include "shardcheck/tensor/dtype.h"

#include <array>
#include <bit>
#include <stdexcept>
#include <string>

namespace shardcheck {
namespace {

struct DTypeInfo {
  DType dtype;
  int bits;
  std::string_view safetensors;
  std::string_view short_name;
};

// In the order of the enumeration, so that a dtype is its own index.
constexpr std::array kInfos{
    DTypeInfo{DType::boolean, 8, "BOOL", "bool"},
    DTypeInfo{DType::f4, 4, "F4", "f4"},
    DTypeInfo{DType::f6_e2m3, 6, "F6_E2M3", "f6_e2m3"},
    DTypeInfo{DType::f6_e3m2, 6, "F6_E3M2", "f6_e3m2"},
    DTypeInfo{DType::u8, 8, "U8", "u8"},
    DTypeInfo{DType::i8, 8, "I8", "i8"},
    DTypeInfo{DType::f8_e5m2, 8, "F8_E5M2", "f8_e5m2"},
    DTypeInfo{DType::f8_e4m3, 8, "F8_E4M3", "f8_e4m3"},
    DTypeInfo{DType::f8_e8m0, 8, "F8_E8M0", "f8_e8m0"},
    DTypeInfo{DType::f8_e4m3fnuz, 8, "F8_E4M3FNUZ", "f8_e4m3fnuz"},
    DTypeInfo{DType::f8_e5m2fnuz, 8, "F8_E5M2FNUZ", "f8_e5m2fnuz"},
    DTypeInfo{DType::i16, 16, "I16", "i16"},
    DTypeInfo{DType::u16, 16, "U16", "u16"},
    DTypeInfo{DType::f16, 16, "F16", "f16"},
    DTypeInfo{DType::bf16, 16, "BF16", "bf16"},
    DTypeInfo{DType::i32, 32, "I32", "i32"},
    DTypeInfo{DType::u32, 32, "U32", "u32"},
    DTypeInfo{DType::f32, 32, "F32", "f32"},
    DTypeInfo{DType::c64, 64, "C64", "c64"},
    DTypeInfo{DType::f64, 64, "F64", "f64"},
    DTypeInfo{DType::i64, 64, "I64", "i64"},
    DTypeInfo{DType::u64, 64, "U64", "u64"},
};

constexpr bool in_enumeration_order() {
  for (std::size_t i = 0; i < kInfos.size(); ++i)
    if (static_cast<std::size_t>(kInfos[i].dtype) != i) return false;
  return true;
}
static_assert(in_enumeration_order());

const DTypeInfo& info(DType dtype) noexcept { return kInfos[static_cast<std::size_t>(dtype)]; }

std::optional<DType> find_by(std::string_view DTypeInfo::*field, std::string_view name) noexcept {
  for (const DTypeInfo& candidate : kInfos)
    if (candidate.*field == name) return candidate.dtype;
  return std::nullopt;
}

constexpr std::uint32_t kF32Infinity = 0x7f800000;

template <typename From, typename To>
void convert_each(std::span<const From> in, std::span<To> out, To (*convert)(From) noexcept) {
  if (in.size() != out.size())
    throw std::invalid_argument("dtype conversion: " + std::to_string(in.size()) + " elements in, room for " +
                                std::to_string(out.size()));
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = convert(in[i]);
}

}  // namespace

int size_bits(DType dtype) noexcept { return info(dtype).bits; }

std::string_view safetensors_name(DType dtype) noexcept { return info(dtype).safetensors; }

std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept {
  return find_by(&DTypeInfo::safetensors, name);
}

std::string_view short_name(DType dtype) noexcept { return info(dtype).short_name; }

std::optional<DType> dtype_from_short_name(std::string_view name) noexcept {
  return find_by(&DTypeInfo::short_name, name);
}

bool is_forward_dtype(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t quiet_nan = (bits >> 16) | 0x0040U;
  // A carry out of the fraction moves to the next binade, and from the largest finite value to infinity.
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>((bits & ~0x80000000U) > kF32Infinity ? quiet_nan : rounded);
}

float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | kF32Infinity | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // Subnormal, fraction * 2^-24: bring the leading one to bit 10, where it is implicit.
  const int shift = std::countl_zero(fraction) - (31 - 10);
  fraction = (fraction << shift) & 0x3ffU;
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(127 - 14 - shift) << 23) | (fraction << 13));
}

std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > kF32Infinity)
    return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  // 65520, halfway between the largest finite value and 2^16, is a tie that goes to infinity.
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude >= 0x38800000U) {  // 2^-14, the smallest normal
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - ((127U - 15U) << 23)) >> 13));
  }
  if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);  // below 2^-25: rounds to zero
  const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
  const std::uint32_t drop = 126U - (magnitude >> 23);  // to units of 2^-24; 14..24
  const std::uint32_t half_minus_one = (1U << (drop - 1)) - 1;
  const std::uint32_t rounded = (significand + half_minus_one + ((significand >> drop) & 1U)) >> drop;
  return static_cast<std::uint16_t>(sign | rounded);
}

void bf16_to_f32(std::span<const std::uint16_t> in, std::span<float> out) {
  convert_each<std::uint16_t, float>(in, out, bf16_to_f32);
}
void f32_to_bf16(std::span<const float> in, std::span<std::uint16_t> out) {
  convert_each<float, std::uint16_t>(in, out, f32_to_bf16);
}
void f16_to_f32(std::span<const std::uint16_t> in, std::span<float> out) {
  convert_each<std::uint16_t, float>(in, out, f16_to_f32);
}
void f32_to_f16(std::span<const float> in, std::span<std::uint16_t> out) {
  convert_each<float, std::uint16_t>(in, out, f32_to_f16);
}

}  // namespace shardcheck
