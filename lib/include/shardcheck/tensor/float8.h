// The 8-bit floating formats of quantised weights (OCP 8-bit floating point 1.0, OCP microscaling formats
// 1.0): bit-exact decoding of every pattern, and rounding back, in integer arithmetic or exact products only.
#pragma once

#include <cstdint>

#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// Exact value of an E4M3 pattern: bias 7, subnormals, no infinity, S.1111.111 is a NaN; largest 448.
float e4m3_to_f32(std::uint8_t bits) noexcept;

/// Exact value of an E5M2 pattern: bias 15, subnormals, infinities and NaNs as IEEE has them; largest 57344.
float e5m2_to_f32(std::uint8_t bits) noexcept;

/// Exact value of an E8M0 pattern: 2^(bits - 127), 2^-127 (an f32 subnormal) included; 255 is a NaN.
float e8m0_to_f32(std::uint8_t bits) noexcept;

/// Nearest E4M3, ties to even, gradual underflow; whatever lies beyond, infinities included, becomes the
/// largest finite value of its sign, as engines that clamp before they convert do. A NaN stays one.
std::uint8_t f32_to_e4m3(float value) noexcept;

/// Nearest E5M2, under the same rules: never an infinity.
std::uint8_t f32_to_e5m2(float value) noexcept;

/// Value of a pattern of f8_e4m3, f8_e5m2 or f8_e8m0. Throws std::invalid_argument for any other dtype.
float f8_to_f32(DType dtype, std::uint8_t bits);

/// Rounds to f8_e4m3 or f8_e5m2. Throws std::invalid_argument for any other dtype.
std::uint8_t f32_to_f8(DType dtype, float value);

}  // namespace shardcheck
