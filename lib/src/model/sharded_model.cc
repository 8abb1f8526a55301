#include "shardcheck/model/sharded_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/forward_pass.h"
#include "model/kv_cache.h"
#include "model/logical_reader.h"
#include "model/shard_reader.h"
#include "model/sharded_state.h"
#include "model/vocabulary_head.h"

namespace shardcheck {
namespace {

void require_runnable(const Geometry& geometry) {
  validate(geometry);
  require_forward(geometry);
}

/// The one group of a collective.
std::shared_ptr<const MeshGroups> groups_of(Collective& collective) {
  return std::make_shared<const MeshGroups>(collective);
}

/// The caller's, which outlive the model.
std::shared_ptr<const MeshGroups> groups_of(MeshGroups& groups) { return {std::shared_ptr<void>(), &groups}; }

/// Throws InvalidInput where a chunk does not go on where the cache ends.
void require_continuation(const BatchStep& step, const KvCache& cache) {
  for (std::size_t i = 0; i < step.size(); ++i) {
    const std::int64_t length = cache.length(step[i].sequence);
    if (step[i].first == length) continue;
    throw InvalidInput(
        fmt::format("step: chunk {}: first={}; allowed: {}, where sequence {} ends in the cache", i,
                    step[i].first, length, step[i].sequence));
  }
}

}  // namespace

/// One pass over a checked step; the cache counts its tokens only when it is done.
template <typename Output>
std::vector<Tensor> ShardedModel::run(const BatchStep& step, KvCache& cache, const Output& output) const {
  require_step_of(state_->geometry, step);
  if (cache.state_ == nullptr || cache.state_->owner != state_->identity)
    throw InvalidInput("step: the cache belongs to another model; allowed: one that this model made");
  require_continuation(step, cache);
  ForwardPass pass(*state_, step, *cache.state_);
  const RankMatrices hidden = pass.hidden();
  std::vector<Tensor> out = output(VocabularyHead(*state_, pass, hidden));
  for (const SequenceChunk& chunk : step)
    cache.state_->lengths[chunk.sequence] = chunk.first + std::ssize(chunk.ids);
  return out;
}

ShardedModel::ShardedModel(Geometry geometry, const ShardedTensors& shards, const Consumer& consumer,
                           Collective& collective, Arithmetic arithmetic, Contract contract,
                           const ForwardSteps& steps, CoverExchange exchange) {
  require_runnable(geometry);
  state_ = std::make_unique<State>(geometry, consumer, groups_of(collective),
                                   Numerics{arithmetic, std::move(contract)}, steps,
                                   Execution{.exchange = exchange});
  read_shards(shards);
}

ShardedModel::ShardedModel(Geometry geometry, const ShardedTensors& shards, const Consumer& consumer,
                           MeshGroups& groups, Arithmetic arithmetic, Contract contract,
                           const Execution& execution, const ForwardSteps& steps) {
  require_runnable(geometry);
  state_ = std::make_unique<State>(geometry, consumer, groups_of(groups),
                                   Numerics{arithmetic, std::move(contract)}, steps, execution);
  read_shards(shards);
}

ShardedModel::ShardedModel(Geometry geometry, const TensorMap& logical, MeshGroups& groups,
                           Arithmetic arithmetic, Contract contract, const Execution& execution,
                           const ForwardSteps& steps) {
  require_runnable(geometry);
  require_weights_of(geometry, logical);
  state_ = std::make_unique<State>(geometry, consumer_named("seed"), groups_of(groups),
                                   Numerics{arithmetic, std::move(contract)}, steps, execution);
  read_views(logical, nullptr);
}

ShardedModel::ShardedModel(const PackedModel& model, MeshGroups& groups, Contract contract,
                           const Execution& execution, const ForwardSteps& steps) {
  state_ = std::make_unique<State>(model.geometry(), consumer_named("seed"), groups_of(groups),
                                   Numerics{model.arithmetic(), std::move(contract)}, steps, execution);
  read_views(model.state().tensors, &model.state());
}

ShardedModel::ShardedModel(const PackedModel& model, Collective& collective, Contract contract,
                           const ForwardSteps& steps, CoverExchange exchange) {
  state_ = std::make_unique<State>(model.geometry(), consumer_named("seed"), groups_of(collective),
                                   Numerics{model.arithmetic(), std::move(contract)}, steps,
                                   Execution{.exchange = exchange});
  read_views(model.state().tensors, &model.state());
}

void ShardedModel::read_shards(const ShardedTensors& shards) {
  std::vector<std::unique_ptr<RankSource>> sources;
  for (std::size_t slot = 0; slot < state_->slots(); ++slot)
    sources.push_back(std::make_unique<ShardReader>(state_->geometry, state_->consumer, state_->places[slot],
                                                    slot, shards, state_->numerics.arithmetic));
  state_->load(sources);
}

void ShardedModel::read_views(const TensorMap& tensors, const PackedModel::State* packed) {
  std::vector<std::unique_ptr<RankSource>> sources;
  for (const RankPlace& place : state_->places)
    sources.push_back(std::make_unique<LogicalReader>(state_->geometry, tensors, packed, place.extent,
                                                      place.tp, state_->numerics.arithmetic));
  state_->load(sources);
}

ShardedModel::~ShardedModel() = default;
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;
ShardedModel& ShardedModel::operator=(ShardedModel&&) noexcept = default;

KvCache ShardedModel::make_cache() const {
  KvCache cache;
  cache.state_ = std::make_unique<KvCache::State>();
  cache.state_->owner = state_->identity;
  for (const RankWeights& rank : state_->ranks) cache.state_->slots.emplace_back(rank.layers.size());
  return cache;
}

std::vector<Tensor> ShardedModel::forward(const Tokens& tokens) const {
  require_tokens_of(state_->geometry, tokens);
  KvCache cache = make_cache();
  return forward(whole_step(tokens), cache);
}

std::vector<Tensor> ShardedModel::forward(const BatchStep& step, KvCache& cache) const {
  return run(step, cache, [](const VocabularyHead& head) { return head.logits(); });
}

std::vector<Tensor> ShardedModel::log_softmax(const BatchStep& step, KvCache& cache) const {
  return run(step, cache, [](const VocabularyHead& head) { return head.log_softmax(); });
}

std::vector<Tensor> ShardedModel::token_logprobs(const BatchStep& step, std::span<const std::int32_t> targets,
                                                 KvCache& cache) const {
  if (std::ssize(targets) != row_count(step))
    throw InvalidInput(fmt::format("token_logprobs: {} targets for {} rows; allowed: one a row",
                                   targets.size(), row_count(step)));
  for (const std::int32_t target : targets) {
    if (target < 0 || target >= state_->geometry.vocab)
      throw InvalidInput(fmt::format("token_logprobs: target {} is outside the vocabulary: allowed 0..{}",
                                     target, state_->geometry.vocab - 1));
  }
  return run(step, cache, [targets](const VocabularyHead& head) { return head.token_logprobs(targets); });
}

}  // namespace shardcheck
