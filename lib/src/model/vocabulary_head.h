// The end of a forward pass: logits where the vocabulary's rows lie, gathered, or normalised there without
// any rank seeing all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/forward_pass.h"
#include "model/sharded_state.h"

namespace shardcheck {

class VocabularyHead {
 public:
  /// `hidden` as ForwardPass gives it.
  VocabularyHead(const ShardedModel::State& model, const ForwardPass& pass, const RankMatrices& hidden);

  /// Per slot: f32 [rows of the step, vocab].
  std::vector<Tensor> logits() const { return assembled(parts_); }
  std::vector<Tensor> log_softmax() const;
  /// Per slot: f32 [rows of the step].
  std::vector<Tensor> token_logprobs(std::span<const std::int32_t> targets) const;

 private:
  int last_stage() const { return model_.stages() - 1; }
  template <typename Visit>
  void for_each_group(Axis axis, const Visit& visit) const {
    model_.for_each_group(axis, last_stage(), visit);
  }
  bool is_whole() const { return model_.tp_degree() == 1 || model_.consumer.head_is_whole(model_.geometry); }
  /// Vocabulary rows of a tensor-parallel rank.
  std::pair<std::int64_t, std::int64_t> range_of(int rank) const;

  /// log(sum of exp) of every row, and the maximum it is relative to.
  struct Normaliser {
    std::vector<float> maximum, log_sum;
  };
  /// A slot's log-probabilities of the targets that it holds, +0 for the others.
  Matrix picked_on(std::size_t slot, std::span<const std::int32_t> targets,
                   const Normaliser& normaliser) const;
  std::vector<Normaliser> normalisers() const;  // by slot; empty on slots of other stages
  std::vector<std::vector<float>> sums_of_group(const MeshGroups::Group& group,
                                                const std::vector<std::vector<float>>& maxima) const;

  /// Columns of all tensor-parallel ranks, then rows of all context ranks, then on every stage.
  std::vector<Tensor> assembled(const RankMatrices& parts) const;
  Matrix gathered_columns(const MeshGroups::Group& group, const RankMatrices& parts) const;
  std::vector<Tensor> on_every_stage(RankMatrices wholes, const Shape& shape) const;
  /// Rows of all context ranks in the order of the step.
  void gather_context(RankMatrices& wholes) const;

  const ShardedModel::State& model_;
  const ForwardPass& pass_;
  RankMatrices parts_;  // by slot: [rows of its context rank, its vocabulary rows]
};

}  // namespace shardcheck
