// The steps of a sharded forward pass that an engine can get wrong. The default is right; a fault of the
// forward level overrides one step. Steps see local arrays and the rank, never the layout.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// Where a step is running.
struct StepSite {
  const Geometry& geometry;
  const Contract& contract;
  Arithmetic arithmetic;
  int degree;
  int rank;
  std::int64_t layer;  // -1 outside layers
  // Of the step under way.
  std::int64_t sequences = 1;      // in the batch
  bool decodes = false;            // every sequence adds one token to earlier ones
  bool sequence_parallel = false;  // the rows here are the rank's share of the tokens
};

/// Where a token stands, for its rotary angles.
struct RotaryPlace {
  std::int64_t position = 0;   // in its sequence
  std::int64_t held_from = 0;  // first position that the context-parallel rank holds
  std::int64_t step_from = 0;  // position of the first token of the sequence in this step
};

class ForwardSteps {
 public:
  virtual ~ForwardSteps() = default;

  /// Called on a copy of the hidden state before its norm.
  virtual void before_norm(const StepSite& site, float* x, std::int64_t rows, std::int64_t width) const;

  /// Sum of squares of the hidden state, replicated on every rank; sums has one float per row, and the
  /// return value is the divisor of the mean.
  virtual float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                                float* sums) const;

  /// Base of the rotary angles: the geometry's.
  virtual double rope_theta(const StepSite& site) const;

  /// The position whose rotary angles a token is turned by: its own.
  virtual std::int64_t rotary_position(const StepSite& site, const RotaryPlace& place) const;

  /// First of the rank's query heads among those of the model, for what the model derives from a head's
  /// number (ALiBi slopes).
  virtual std::int64_t first_head(const StepSite& site, const LocalExtent& extent) const;

  /// Whether RoPE pairs (j, j + head_dim/2).
  virtual bool rope_is_half_split(const StepSite& site) const;

  /// Local KV head of a local query head.
  virtual std::int64_t kv_head_of(const StepSite& site, const Consumer& consumer, const LocalExtent& extent,
                                  std::int64_t head) const;

  /// Whether attention is causal.
  virtual bool causal(const StepSite& site) const;

  /// Queries at positions below this one are masked causally, if attention is causal; the others see every
  /// key. Of a sequence of `length` positions, which one rank holds: all, `length`.
  virtual std::int64_t masked_queries(const StepSite& site, std::int64_t length) const;

  /// Where blocks of key positions begin, for `rows` queries from position `first_query` on: 0, absolute.
  /// Asked where one rank holds all positions.
  virtual std::int64_t block_offset(const StepSite& site, std::int64_t first_query, std::int64_t rows) const;

  /// Whether a context-parallel rank weighs its keys relative to the largest score it sees itself, and
  /// whoever merges rescales (ring attention): true under native. False: relative to the maximum over ranks.
  virtual bool uses_local_maximum(const StepSite& site) const;

  /// Called on the hidden state [rows, d_model] that a pipeline stage hands to the next.
  virtual void at_stage_boundary(const StepSite& site, std::span<float> x) const;

  /// The order in which a token's experts, ascending, are added up on rank `expert_rank` of
  /// `expert_degree`: as they are. Every rank holds as many experts as any other, ascending.
  virtual void order_experts(const StepSite& site, int expert_degree, int expert_rank,
                             std::span<std::int64_t> experts) const;

  /// Called on a rank's partial product of a row-parallel layer (role "o_proj" or "down") before the
  /// collective.
  virtual void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const;

  /// Called on a copy of the bias that a rank holds of a row-parallel layer (not empty) before it is used.
  virtual void before_bias(const StepSite& site, std::string_view role, std::span<float> bias) const;

  /// Leaf width of the tree of a sum of length k over ranks: the contract's `leaf`, for role "lm_head" (the
  /// sum of exponentials over the vocabulary) 1.
  virtual std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                            std::int64_t leaf) const;

  /// Whether a rank ships every leaf it owns instead of the nodes of its cover: more bytes, the same sum.
  virtual bool ships_leaves(const StepSite& site) const;

  /// How many times the partial sums of a row-parallel layer are reduced: 1. 0 keeps the partial sum.
  virtual int reductions(const StepSite& site, std::string_view role) const;

  /// How many logits of padding, which are zero, the sum of exponentials over the vocabulary counts: none.
  virtual std::int64_t padding_in_softmax(const StepSite& site) const;

  /// Whether a rank's embedding gives zeros for tokens of other ranks: else the nearest row it has.
  virtual bool masks_embedding(const StepSite& site) const;

  /// Range of token ids a rank's embedding rows answer for.
  virtual std::pair<std::int64_t, std::int64_t> embedding_range(const StepSite& site,
                                                                const LocalExtent& extent) const;
};

/// The right steps.
const ForwardSteps& right_steps();

}  // namespace shardcheck
