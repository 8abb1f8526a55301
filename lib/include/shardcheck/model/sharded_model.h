// The tensor-parallel model: one forward body over the ranks a Collective holds here. It reads each rank's
// bytes through a consumer's convention and never sees the layout that produced them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/comm/collective.h"
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
  ~ShardedModel();
  ShardedModel(ShardedModel&&) noexcept;
  ShardedModel& operator=(ShardedModel&&) noexcept;

  /// Logits per local rank, each f32 [batch*length, vocab] after the all-gather. All ranks must agree.
  std::vector<Tensor> forward(const Tokens& tokens) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardcheck
