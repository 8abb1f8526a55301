// Random weights and tokens for a geometry: pure functions of a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// `recorded`: the seed's N(0, 0.02) matrices and N(1, 0.1) norms, what the recorded floors are measured on.
/// `powered`: matrices N(0, 1/sqrt(fan_in)), embedding and sinks N(0, 1), learned positions and biases 0.5 N,
/// norms 1 + 0.5 N, so that no layout bug hides behind a default initialisation. `fingerprint`: bits that
/// encode (tensor, global index).
enum class WeightStyle : std::uint8_t { recorded, powered, fingerprint };

/// One tensor per logical tensor of the geometry, of `dtype` (f32, bf16 or f16).
TensorMap make_weights(const Geometry& geometry, WeightStyle style, std::uint64_t seed, DType dtype);

/// Where a fingerprint element came from.
struct FingerprintOrigin {
  std::string tensor;      // logical name
  std::int64_t index = 0;  // flat index in it
};

/// Decodes the bits of a `fingerprint` element of an f32 model. nullopt for bits that no element has (0 among
/// them: memory that nobody wrote). 16-bit fingerprints are hashes and cannot be decoded.
std::optional<FingerprintOrigin> decode_fingerprint(const Geometry& geometry, std::uint32_t bits);

/// `batch` sequences of `length` token ids, row-major.
struct Tokens {
  std::int64_t batch = 1;
  std::int64_t length = 0;
  std::vector<std::int32_t> ids;

  std::int64_t count() const { return batch * length; }
};

/// Token ids uniform over the vocabulary.
Tokens make_tokens(const Geometry& geometry, std::int64_t batch, std::int64_t length, std::uint64_t seed);

/// Throws InvalidInput naming the tensor when `weights` lacks a logical tensor of the geometry, has one too
/// many, or one of another shape or a dtype that no forward pass reads.
void require_weights_of(const Geometry& geometry, const TensorMap& weights);

}  // namespace shardcheck
