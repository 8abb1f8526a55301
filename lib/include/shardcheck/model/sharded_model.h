// The tensor-parallel model: one forward body over the ranks a Collective holds here. It reads each rank's
// bytes through a consumer's convention and never sees the layout that produced them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/comm/mesh_groups.h"
#include "shardcheck/model/batch.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/model/forward_steps.h"
#include "shardcheck/model/packed_model.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

/// How ranks exchange the tree nodes of a row-parallel layer: every node to everyone, or every rank completes
/// the tree for its slice of the output and the rounded slices are gathered. The same bits either way;
/// `automatic` takes the second for outputs of 1 MiB and more.
enum class CoverExchange : std::uint8_t { automatic, one_shot, two_shot };

/// Keys and values of earlier steps, on every slot the part that it owns.
class KvCache {
 public:
  KvCache();
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// Tokens of a sequence that were added so far; 0 for one that is not known.
  std::int64_t length(std::int64_t sequence) const;
  /// Drops a finished sequence, whose number may then begin anew.
  void forget(std::int64_t sequence);
  /// Bytes of keys and values on all slots.
  std::int64_t bytes() const;

  struct State;

 private:
  friend class ShardedModel;
  std::unique_ptr<State> state_;
};

/// How a forward pass is spread over the ranks of a mesh, besides where its weights lie.
struct Execution {
  CoverExchange exchange = CoverExchange::automatic;
  /// Between the layers' products each rank of a tensor-parallel group keeps its share of the tokens.
  bool sequence_parallel = false;
  /// Layers at which pipeline stages end but the last one's, ascending; empty: as even as can be.
  std::vector<std::int64_t> stage_ends = {};
  /// Key positions at which the ranks of a context-parallel group end but the last one, whose end is open:
  /// ascending multiples of the contract's key_block, one fewer than ranks; empty: one block each.
  std::vector<std::int64_t> context_ends = {};

  bool operator==(const Execution&) const = default;
};

class ShardedModel {
 public:
  /// `shards` holds, per file tensor, one tensor per *local* rank of the collective. The collective, the
  /// consumer and the steps must outlive the model. Throws UnsupportedLayout when the consumer cannot run at
  /// the collective's degree, InvalidShards when a tensor is missing or of a wrong local shape.
  ShardedModel(Geometry geometry, const ShardedTensors& shards, const Consumer& consumer,
               Collective& collective, Arithmetic arithmetic, Contract contract,
               const ForwardSteps& steps = right_steps(), CoverExchange exchange = CoverExchange::automatic);

  /// Ranks that read views of a packed model, by the convention of the consumer `seed`, in the model's
  /// arithmetic. Collective and steps must outlive the model; the packed model need not. Throws
  /// UnsupportedLayout when the geometry cannot run at the collective's degree.
  ShardedModel(const PackedModel& model, Collective& collective, Contract contract,
               const ForwardSteps& steps = right_steps(), CoverExchange exchange = CoverExchange::automatic);

  /// Over a mesh of axes tp, pp, cp and ep; `shards` holds one tensor per slot of the groups that has it, an
  /// empty one for a slot that does not. Throws as above, and UnsupportedLayout for other axes, stages
  /// without layers, or an expert count that ep does not divide.
  ShardedModel(Geometry geometry, const ShardedTensors& shards, const Consumer& consumer, MeshGroups& groups,
               Arithmetic arithmetic, Contract contract, const Execution& execution,
               const ForwardSteps& steps = right_steps());
  /// The same with ranks that read views of logical tensors, cut as the consumer `seed` cuts: for laws that
  /// compare execution shapes.
  ShardedModel(Geometry geometry, const TensorMap& logical, MeshGroups& groups, Arithmetic arithmetic,
               Contract contract, const Execution& execution, const ForwardSteps& steps = right_steps());
  ShardedModel(const PackedModel& model, MeshGroups& groups, Contract contract, const Execution& execution,
               const ForwardSteps& steps = right_steps());
  ~ShardedModel();
  ShardedModel(ShardedModel&&) noexcept;
  ShardedModel& operator=(ShardedModel&&) noexcept;

  /// Logits per local rank, each f32 [batch*length, vocab] after the all-gather. All ranks must agree.
  std::vector<Tensor> forward(const Tokens& tokens) const;

  /// A cache for sequences of this model, empty.
  KvCache make_cache() const;
  /// Logits per slot, each f32 [rows of the step, vocab]; the step's keys and values join the cache. Throws
  /// InvalidInput when a chunk does not begin where the cache ends, and leaves the cache as it was.
  std::vector<Tensor> forward(const BatchStep& step, KvCache& cache) const;
  /// Log-softmax of those logits, f32 [rows, vocab], normalised over the vocabulary where its rows lie.
  std::vector<Tensor> log_softmax(const BatchStep& step, KvCache& cache) const;
  /// Log-probability per slot, f32 [rows], of token targets[i] after row i; no rank sees all logits. Throws
  /// InvalidInput for another number of targets or one outside the vocabulary.
  std::vector<Tensor> token_logprobs(const BatchStep& step, std::span<const std::int32_t> targets,
                                     KvCache& cache) const;

  struct State;

 private:
  void read_shards(const ShardedTensors& shards);
  void read_views(const TensorMap& tensors, const PackedModel::State* packed);
  template <typename Output>
  std::vector<Tensor> run(const BatchStep& step, KvCache& cache, const Output& output) const;

  std::unique_ptr<State> state_;
};

}  // namespace shardcheck
