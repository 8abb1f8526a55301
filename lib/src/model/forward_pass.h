// One forward pass of a sharded model over the tokens of a step: embedding, layers stage by stage, final
// norm. The same body on every mesh; what an axis adds is a collective at one place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks.h"
#include "model/kv_cache.h"
#include "model/row_parallel.h"
#include "model/sharded_state.h"
#include "model/step_rows.h"

namespace shardcheck {

class ForwardPass {
 public:
  /// The step must have been checked; all arguments outlive the pass.
  ForwardPass(const ShardedModel::State& model, const BatchStep& step, KvCache::State& cache);

  /// After the final norm, the rows of each slot's context rank on the slots of the last stage; nothing on
  /// the others.
  RankMatrices hidden();

  const StepRows& rows() const { return rows_; }
  StepSite site(std::size_t slot, std::int64_t layer) const;

 private:
  const RankPlace& place(std::size_t slot) const { return model_.places[slot]; }
  std::int64_t own_rows(std::size_t slot) const { return rows_.rows_of(place(slot).cp); }
  template <typename Visit>
  void for_each_slot(int stage, const Visit& visit) const;

  void embed(RankMatrices& xs) const;
  void add_positions(RankMatrices& xs) const;
  void hand_over(int stage, RankMatrices& xs) const;
  /// What a layer's attention, or its MLP, adds to the hidden state.
  RankMatrices attention(int stage, std::int64_t layer, const RankMatrices& xs);
  RankMatrices mlp(int stage, std::int64_t layer, const RankMatrices& xs) const;
  void add_to(int stage, RankMatrices& xs, const RankMatrices& sums) const;

  /// Whose angles the rows of a context rank are turned by.
  std::vector<std::int32_t> rotary_positions(const BatchStep& step, int context_rank) const;

  Matrix normalized(std::size_t slot, std::int64_t layer, Matrix x, const NormWeights& weights) const;
  /// Under sequence parallelism: a slot's share of its context rank's rows, and back.
  Matrix share_of(std::size_t slot, const Matrix& x) const;
  RankMatrices gathered(int stage, RankMatrices xs) const;

  /// A norm of the layer on every slot of a stage, the rows of its context rank.
  RankMatrices all_normalized(int stage, std::int64_t layer, const RankMatrices& xs,
                              NormWeights LayerWeights::*norm) const;

  struct Projections {
    Matrix q, k, v;
  };
  Projections project(std::size_t slot, std::int64_t layer, const Matrix& normed) const;
  void remember(std::size_t slot, std::int64_t layer, const Projections& projections);
  RankMatrices attend(int stage, std::int64_t layer, const std::vector<Projections>& projections) const;

  Matrix mlp_hidden(const MlpWeights& weights, const Matrix& normed) const;
  /// The row-parallel product of every slot of a stage, summed over its tensor-parallel group.
  struct RowProduct {
    std::string_view role;
    std::int64_t layer;
    std::int64_t k;
    std::int64_t leaf;
    bool scatters;
  };
  template <typename Weights>
  RankMatrices row_parallel(int stage, const RowProduct& product, RankMatrices xs,
                            const Weights& weights_of) const;
  RankMatrices dense(int stage, std::int64_t layer, const RankMatrices& normed) const;
  RankMatrices experts(int stage, std::int64_t layer, const RankMatrices& normed) const;

  const ShardedModel::State& model_;
  KvCache::State& cache_;
  StepRows rows_;
  std::vector<std::int32_t> ids_;  // of the step's rows
  std::int64_t sequences_;
  bool decodes_;
  std::vector<RotaryTables> rotary_;  // by context rank
};

}  // namespace shardcheck
