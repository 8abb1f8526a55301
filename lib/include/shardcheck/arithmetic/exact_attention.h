// Attention under arithmetic `exact`. What rounds: each score q.k once, then its product with
// 1/sqrt(head_dim), then the slope's multiply-add; exp of score minus the maximum over all keys and the sink,
// then to a multiple of 2^-44; the denominator, an exact integer sum, once; each numerator, an exact sum of
// p*v, once; the quotient. Every sum is exact and the maximum is taken first, so the result is a function of
// the set of keys a query sees: no partition of key positions over ranks and no order of them changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/attention.h"
#include "shardcheck/arithmetic/exact.h"

namespace shardcheck {

/// As `attention` in attention.h; key_block and the tree shape have no part in it. A query that sees a NaN
/// score, a score of +inf, or nothing but scores of -inf and no sink above that gets NaN in every output. At
/// most 2^18 keys; throws std::invalid_argument as `attention` does.
void exact_attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
                     std::span<const std::int64_t> kv_of_head, float* out);

/// The keys and values one rank holds: row j of k and v (strides as in the shape) belongs to positions[j].
/// Any positions in any order, also none; over all ranks each position once.
struct ExactKeys {
  const float* k = nullptr;
  const float* v = nullptr;
  std::span<const std::int64_t> positions;
};

/// Step 1 of attention over ranks: maxima[h * rows + i] = the largest score, of those that are not NaN, that
/// query i of head h sees among these keys; -inf when there is none. The caller takes the maximum over ranks.
/// Sinks have no part in it. Of the shape, the keys held are not read.
std::vector<float> exact_attention_maxima(const AttentionShape& shape, const float* q, const ExactKeys& keys,
                                          std::span<const std::int64_t> kv_of_head);

/// Numerators and denominators before rounding, for one global maximum per head and query.
class ExactAttentionPartial {
 public:
  /// Adds the part of another rank. Throws std::invalid_argument for another shape and, with sinks, for other
  /// maxima.
  void merge(const ExactAttentionPartial& other);
  /// out as in `exact_attention`, rows `out_stride` apart; where the shape has sinks, their weights are added
  /// here, once. Throws std::invalid_argument unless the partial has this shape's rows, heads and head_dim,
  /// and for a sink that is above the maximum which the partial is relative to.
  void round(const AttentionShape& shape, float* out) const;

  /// The bytes a rank ships, and back; `from_bytes` refuses as ExactPartial::from_bytes does.
  std::vector<std::byte> bytes() const;
  static ExactAttentionPartial from_bytes(std::span<const std::byte> bytes);

 private:
  friend ExactAttentionPartial exact_attention_partial(const AttentionShape&, const float*, const ExactKeys&,
                                                       std::span<const std::int64_t>, std::span<const float>);

  std::int64_t rows_ = 0;
  std::vector<std::int64_t> denominators_;  // [heads, rows], in units of 2^-44; kNotANumber for a NaN row
  std::vector<float> maxima_;               // [heads, rows] under a shape with sinks, which `round` weighs
  std::vector<ExactPartial> numerators_;    // per head [rows, head_dim]
};

/// Step 2: the sums over these keys. `maxima` as step 1 gives them, after the maximum over ranks and the
/// sinks. Throws std::invalid_argument for another number of maxima, and for one below a score.
ExactAttentionPartial exact_attention_partial(const AttentionShape& shape, const float* q,
                                              const ExactKeys& keys, std::span<const std::int64_t> kv_of_head,
                                              std::span<const float> maxima);

}  // namespace shardcheck
