// Pieces of a forward pass that act on plain arrays of one rank (or of the unsharded model): what
// ReferenceModel and ShardedModel are allowed to share, element functions and reductions, and nothing about
// layouts or ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/model/weights.h"

namespace shardcheck {

/// Values of a tensor as f32, whatever its storage dtype.
std::vector<float> widened(const Tensor& tensor);

/// RMSNorm over head_dim of every head, in place.
void normalize_heads(const Numerics& numerics, Matrix& x, std::int64_t head_dim, float eps,
                     std::span<const float> weight);

/// What follows the sums of squares of a norm: x scaled as rms_scale says, plus `bias` unless empty, stored.
void finish_norm(const Numerics& numerics, Matrix& x, std::span<const float> sums, float divisor, float eps,
                 std::span<const float> gain, std::span<const float> bias);

/// x += y, stored.
void add_residual(const Numerics& numerics, Matrix& x, const Matrix& y);

/// Position of every row of a batch of equally long sequences.
std::vector<std::int32_t> positions_of(const Tokens& tokens);

/// Rotary tables for rows at the given positions.
class RotaryTables {
 public:
  RotaryTables(const Geometry& geometry, std::vector<std::int32_t> positions);
  void apply(const Numerics& numerics, Matrix& x, std::int64_t head_dim, bool half_split) const;

 private:
  std::int64_t rotary_width_;
  std::vector<float> cos_, sin_;
  std::vector<std::int32_t> table_rows_;  // of every row
};

/// Attention of every sequence of a batch over the heads held here. `slopes` (ALiBi) and `sinks`: one value
/// per head, or empty.
Matrix attend(const Geometry& geometry, const Numerics& numerics, const Tokens& tokens, const Matrix& q,
              const Matrix& k, const Matrix& v, std::span<const std::int64_t> kv_of_head, bool causal,
              std::span<const float> slopes = {}, std::span<const float> sinks = {});

/// act(gate) * up, stored.
Matrix gated(const Numerics& numerics, Activation activation, const Matrix& gate, const Matrix& up);
/// act(up), stored: an MLP without a gate.
Matrix activated(const Numerics& numerics, Activation activation, const Matrix& up);

/// Throws InvalidInput naming the position when a token is outside the vocabulary, the counts disagree, or
/// sequences are longer than the geometry's learned positions.
void require_tokens_of(const Geometry& geometry, const Tokens& tokens);

}  // namespace shardcheck
