// Our own elementary functions in f32: fixed polynomials, explicit fused multiply-add, no libm
// transcendental (libm differs between versions and processors). Every arithmetic, the reference model
// and the normal generator use these, so their bits are part of every recorded figure.
// The scalar and the SIMD forms give the same bits on every target.
#pragma once

#include <cstdint>
#include <span>

namespace shardcheck {

/// A NaN argument gives that NaN made quiet, in every function of this header.

/// e^x. Overflows to +inf above 88.72, underflows through subnormals to +0; exp(-inf) = 0.
/// Error at most 1 ULP.
float exp_f32(float x) noexcept;

/// Natural logarithm. log(+-0) = -inf, negative to NaN, log(inf) = inf; subnormals are handled.
/// Error at most 1 ULP.
float log_f32(float x) noexcept;

/// Sine (odd, sin(-0) = -0) and cosine (even). Error at most 1 ULP for every finite x; beyond |x| = 2^20 the
/// reduction is exact integer arithmetic and slow. An infinite x gives NaN.
float sin_f32(float x) noexcept;
float cos_f32(float x) noexcept;

/// 1 / (1 + e^-x), evaluated as e^x / (1 + e^x) for negative x so that nothing overflows, and x * sigmoid(x);
/// from exp_f32 and IEEE division. sigmoid(-inf) = +0, sigmoid(inf) = 1, silu(-inf) = -0, silu(inf) = inf.
/// Error at most 3 ULP (sigmoid, normal results) and 4 ULP (silu, x >= -87); below -87 silu is within
/// |x| * 2^-149 of its value.
float sigmoid_f32(float x) noexcept;
float silu_f32(float x) noexcept;

/// x Phi(x) = 0.5 x (1 + erf(x / sqrt 2)), and GPT-2's approximation of it, x sigmoid(2 sqrt(2/pi)
/// (x + 0.044715 x^3)). Both are -0 at -inf and -0, inf at inf. Error at most 4 ULP for x >= -5, at most
/// 5 ULP where the result is normal (x >= -13, and x >= -10).
float gelu_f32(float x) noexcept;
float gelu_tanh_f32(float x) noexcept;

/// 1 / sqrt(x) as one IEEE square root and one IEEE division. rsqrt(+-0) = +-inf, rsqrt(inf) = +0, negative
/// to NaN.
float rsqrt_f32(float x) noexcept;

/// x^y for the RoPE frequencies theta^(-2i/d): exp(y * log(x)) evaluated in f64 by fixed polynomials,
/// rounded once to f32 (error below 0.501 ULP on normal results). NaN unless x is positive and finite.
float pow_f32(float x, double y) noexcept;

/// Elementwise over spans, dispatched to the widest SIMD target of the processor. `in` and `out` may be
/// the same span; sizes must agree (std::invalid_argument).
void exp_f32(std::span<const float> in, std::span<float> out);
void log_f32(std::span<const float> in, std::span<float> out);
void sin_f32(std::span<const float> in, std::span<float> out);
void cos_f32(std::span<const float> in, std::span<float> out);
void silu_f32(std::span<const float> in, std::span<float> out);
void gelu_f32(std::span<const float> in, std::span<float> out);
void gelu_tanh_f32(std::span<const float> in, std::span<float> out);

}  // namespace shardcheck
