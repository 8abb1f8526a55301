// Element types of tensors, named as safetensors names them, and the conversions between f32 and the
// two 16-bit floating formats. The conversions are bit-exact for every pattern and use integer
// arithmetic only, so that they are the same with any compiler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace shardcheck {

/// Element type. The list is the one of safetensors 0.8 (source: safetensors/src/tensor.rs).
enum class DType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// Size of one element in bits: 4 for f4, 6 for the f6 types, else a multiple of 8.
int size_bits(DType dtype) noexcept;

/// Whether T is the C++ type of an element. 16-bit floats are held as std::uint16_t, 8-bit floats and
/// booleans as std::uint8_t; sub-byte and complex types as nothing.
template <typename T>
constexpr bool is_stored_as(DType dtype) noexcept;

/// Name in a safetensors header ("F32", "BF16", "F8_E4M3", ...). Never empty.
std::string_view safetensors_name(DType dtype) noexcept;

/// Inverse of `safetensors_name`; nullopt for any other text (the match is case-sensitive).
std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept;

/// Name in a case line and in reports ("f32", "bf16", "i64", ...).
std::string_view short_name(DType dtype) noexcept;

/// Inverse of `short_name`; nullopt for any other text.
std::optional<DType> dtype_from_short_name(std::string_view name) noexcept;

/// True for f32, bf16 and f16: the types a forward pass can store weights in.
bool is_forward_dtype(DType dtype) noexcept;

/// Exact value of a bf16 bit pattern. NaN payloads are kept.
float bf16_to_f32(std::uint16_t bits) noexcept;

/// Nearest bf16, ties to even. A NaN stays a NaN with the same sign and is made quiet.
std::uint16_t f32_to_bf16(float value) noexcept;

/// Exact value of an IEEE binary16 bit pattern, subnormals included. NaN payloads are kept.
float f16_to_f32(std::uint16_t bits) noexcept;

/// Nearest binary16, ties to even, gradual underflow, overflow to infinity; NaN as in `f32_to_bf16`.
std::uint16_t f32_to_f16(float value) noexcept;

/// Element-wise conversion of equally long spans (throws std::invalid_argument when they differ).
void bf16_to_f32(std::span<const std::uint16_t> in, std::span<float> out);
void f32_to_bf16(std::span<const float> in, std::span<std::uint16_t> out);
void f16_to_f32(std::span<const std::uint16_t> in, std::span<float> out);
void f32_to_f16(std::span<const float> in, std::span<std::uint16_t> out);

template <typename T>
constexpr bool is_stored_as(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::f8_e5m2:
    case DType::f8_e4m3:
    case DType::f8_e8m0:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
      return std::is_same_v<T, std::uint8_t>;
    case DType::i8:
      return std::is_same_v<T, std::int8_t>;
    case DType::i16:
      return std::is_same_v<T, std::int16_t>;
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return std::is_same_v<T, std::uint16_t>;
    case DType::i32:
      return std::is_same_v<T, std::int32_t>;
    case DType::u32:
      return std::is_same_v<T, std::uint32_t>;
    case DType::f32:
      return std::is_same_v<T, float>;
    case DType::f64:
      return std::is_same_v<T, double>;
    case DType::i64:
      return std::is_same_v<T, std::int64_t>;
    case DType::u64:
      return std::is_same_v<T, std::uint64_t>;
    case DType::f4:
    case DType::f6_e2m3:
    case DType::f6_e3m2:
    case DType::c64:
      break;
  }
  return false;
}

}  // namespace shardcheck
