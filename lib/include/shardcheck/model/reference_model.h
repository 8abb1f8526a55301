// The unsharded model: reads logical tensors, knows nothing of layouts, ranks or collectives. It shares only
// element functions and reductions with ShardedModel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A legal summation order of the row-parallel sums: K cut at random places into at most `parts` chains,
/// folded in random order, both drawn from `seed` and the layer's name. seed 0: the model's own arithmetic.
/// Used by the tolerance room, on models of arithmetic native.
struct SummationOrder {
  std::uint64_t seed = 0;
  int parts = 1;
};

class ReferenceModel {
 public:
  /// Deliberate mistakes for tests of the golden check: what reference and sharded model could share.
  struct Mistake {
    bool non_causal = false;
    bool layer_norm = false;  // subtract the mean first
  };

  /// Packs the weights. Throws InvalidInput when they do not match the geometry.
  ReferenceModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic, Contract contract);
  ReferenceModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic, Contract contract,
                 Mistake mistake);
  ~ReferenceModel();
  ReferenceModel(ReferenceModel&&) noexcept;
  ReferenceModel& operator=(ReferenceModel&&) noexcept;

  const Geometry& geometry() const noexcept;

  /// Logits, f32 [batch*length, vocab]. Throws InvalidInput for a token outside the vocabulary and for
  /// sequences longer than the positions that the model learned.
  Tensor forward(const Tokens& tokens, SummationOrder order = {}) const;

  /// Log-softmax of those logits, f32 [batch*length, vocab]: (logit - largest) - log(sum of exponentials),
  /// the sum under tree running over single entries of the vocabulary. Throws as `forward`.
  Tensor log_softmax(const Tokens& tokens) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Greedy decoding by full recomputation: `count` tokens in all, starting with `prompt`; ties to the lower
/// id.
std::vector<std::int32_t> decode_greedily(const ReferenceModel& model, std::vector<std::int32_t> prompt,
                                          std::int64_t count);

}  // namespace shardcheck
