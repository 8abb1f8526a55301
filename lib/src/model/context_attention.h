// Attention of a step over the ranks of a context-parallel group, each of which holds the keys and values of
// its own positions: queries travel to every rank, weighted sums travel back to the queries' owner.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "model/kv_cache.h"
#include "model/numerics.h"
#include "model/rank_place.h"
#include "model/row_parallel.h"
#include "model/step_rows.h"
#include "shardcheck/arithmetic/exact_attention.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {

/// One local rank of the group: its queries and what its cache holds, the step's keys included.
struct ContextSlot {
  StepSite site;
  const RankPlace& place;
  const Matrix& q;
  const std::map<std::int64_t, CachedRows>& cached;  // by sequence
  std::span<const float> sinks;                      // of the local heads; empty: none
  std::span<const float> slopes;                     // of ALiBi, likewise
  std::vector<std::int64_t> kv_of_head;
};

class ContextAttention {
 public:
  /// All arguments outlive the object.
  ContextAttention(const Numerics& numerics, const ForwardSteps& steps, const StepRows& rows,
                   Collective& collective)
      : numerics_(numerics), steps_(steps), rows_(rows), collective_(collective) {}

  /// The stored output of every member's own queries. Members are the group's local ranks, in order.
  RankMatrices operator()(const std::vector<ContextSlot>& members) const;

 private:
  int degree() const { return collective_.degree(); }
  bool is_exact() const { return numerics_.arithmetic == Arithmetic::exact; }
  /// One run of queries against the keys that `rank` holds of its sequence.
  AttentionShape shape_of(const ContextSlot& member, const RowRun& run, int rank) const;
  Matrix alone(const ContextSlot& member) const;
  /// Queries [first, last) of a run, into their rows of `out`.
  void attend_rows(const ContextSlot& member, const RowRun& run, std::int64_t first, std::int64_t last,
                   bool causal, Matrix& out) const;

  /// Throws CollectiveMismatch when the rank sent fewer rows than it has.
  void require_rows(int rank, std::int64_t rows) const;
  /// Queries of every rank of the group.
  RankMatrices gathered_queries(const std::vector<ContextSlot>& members) const;
  /// Largest score of every query of the group among a member's keys: rank after rank, run after run.
  std::vector<float> maxima(const ContextSlot& member, const RankMatrices& queries) const;
  /// What a member sends to each rank.
  std::vector<std::vector<std::byte>> parcels(const ContextSlot& member, const RankMatrices& queries,
                                              std::span<const float> maxima) const;
  Matrix completed(const ContextSlot& member, std::span<const std::byte> received) const;

  const Numerics& numerics_;
  const ForwardSteps& steps_;
  const StepRows& rows_;
  Collective& collective_;
};

}  // namespace shardcheck
