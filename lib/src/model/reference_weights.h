// The weights of the unsharded model, packed from logical tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// Logical tensors of one layer (or -1) by role, with the arithmetic they are packed for.
class LogicalLayer {
 public:
  LogicalLayer(const TensorMap& weights, std::int64_t layer, Arithmetic arithmetic)
      : weights_(weights), layer_(layer), arithmetic_(arithmetic) {}

  std::int64_t index() const { return layer_; }
  const Tensor& tensor(std::string_view role, std::int64_t expert = -1) const {
    return weights_.at(logical_name(role, layer_, expert));
  }
  LinearWeights linear(std::string_view role, std::int64_t expert = -1) const {
    return {tensor(role, expert), arithmetic_};
  }
  /// Empty when the layer has no such tensor.
  std::vector<float> vector(std::string_view role) const;
  Arithmetic arithmetic() const { return arithmetic_; }

 private:
  const TensorMap& weights_;
  std::int64_t layer_;
  Arithmetic arithmetic_;
};

/// Bias empty but for LayerNorm.
struct ReferenceNorm {
  ReferenceNorm(const LogicalLayer& layer, const std::string& role)
      : gain(layer.vector(role)), bias(layer.vector(role + "_bias")) {}

  std::vector<float> gain, bias;
};

/// A row-parallel weight is kept unpacked too: a SummationOrder repacks it at random cuts.
struct ReferenceRowParallel {
  ReferenceRowParallel(const LogicalLayer& layer, std::string_view role, std::vector<float> own_bias,
                       std::int64_t own_leaf, std::int64_t expert = -1)
      : name(logical_name(role, layer.index(), expert)),
        full(layer.tensor(role, expert)),
        packed(full, layer.arithmetic()),
        bias(std::move(own_bias)),
        leaf(own_leaf) {}

  std::string name;
  Tensor full;
  LinearWeights packed;
  std::vector<float> bias;  // empty: none
  std::int64_t leaf;        // of its sum under tree
};

/// A gated or plain MLP: dense, of one expert, or of the shared expert (`prefix` "", "expert_" or "shared_").
struct ReferenceMlp {
  ReferenceMlp(const Geometry& geometry, const LogicalLayer& layer, const std::string& prefix,
               std::int64_t leaf, std::int64_t expert = -1);

  std::optional<LinearWeights> gate;
  LinearWeights up;
  std::vector<float> gate_bias, up_bias;
  ReferenceRowParallel down;
};

struct ReferenceExperts {
  ReferenceExperts(const Geometry& geometry, const LogicalLayer& layer, const Contract& contract);

  LinearWeights router;
  std::vector<float> router_bias;  // empty: experts are chosen by their logits
  std::vector<ReferenceMlp> experts;
  std::optional<ReferenceMlp> shared;
};

struct ReferenceLayer {
  ReferenceLayer(const Geometry& geometry, const LogicalLayer& layer, const Contract& contract);

  ReferenceNorm attn_norm, ffn_norm;
  LinearWeights q, k, v;
  std::vector<float> q_bias, k_bias, v_bias, q_norm, k_norm, sinks;
  ReferenceRowParallel o_proj;
  std::optional<ReferenceMlp> dense;
  std::optional<ReferenceExperts> experts;
};

}  // namespace shardcheck
