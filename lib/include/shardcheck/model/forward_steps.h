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

  /// Whether RoPE pairs (j, j + head_dim/2).
  virtual bool rope_is_half_split(const StepSite& site) const;

  /// Local KV head of a local query head.
  virtual std::int64_t kv_head_of(const StepSite& site, const Consumer& consumer, const LocalExtent& extent,
                                  std::int64_t head) const;

  /// Whether attention is causal.
  virtual bool causal(const StepSite& site) const;

  /// Called on a rank's partial product of a row-parallel layer (role "o_proj" or "down") before the
  /// collective.
  virtual void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const;

  /// Leaf width of the tree of a row-parallel sum of length k: the contract's `leaf`.
  virtual std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                            std::int64_t leaf) const;

  /// Whether a rank ships every leaf it owns instead of the nodes of its cover: more bytes, the same sum.
  virtual bool ships_leaves(const StepSite& site) const;

  /// How many times the partial sums of a row-parallel layer are reduced: 1. 0 keeps the partial sum.
  virtual int reductions(const StepSite& site, std::string_view role) const;

  /// Range of token ids a rank's embedding rows answer for.
  virtual std::pair<std::int64_t, std::int64_t> embedding_range(const StepSite& site,
                                                                const LocalExtent& extent) const;
};

/// The right steps.
const ForwardSteps& right_steps();

}  // namespace shardcheck
