// The weights that one rank of a mesh runs with.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/numerics.h"
#include "model/rank_place.h"
#include "model/rank_source.h"

namespace shardcheck {

/// Bias empty but for LayerNorm.
struct NormWeights {
  std::vector<float> gain, bias;
};

/// A gated or plain MLP: dense, of one expert, or of the shared expert. `down` is built by agreement of the
/// tensor-parallel ranks.
struct MlpWeights {
  LinearWeights gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

struct ExpertWeights {
  LinearWeights router;
  std::vector<float> router_bias;
  std::vector<MlpWeights> own;  // of the experts the rank holds, ascending
  std::optional<MlpWeights> shared;
};

struct LayerWeights {
  NormWeights attn_norm, ffn_norm;
  LinearWeights q, k, v, o_proj;
  std::vector<float> q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, sinks;
  std::optional<MlpWeights> dense;
  std::optional<ExpertWeights> experts;
};

struct RankWeights {
  /// Everything but the row-parallel weights.
  /// `first_head`: of the rank's query heads, among those of the model.
  RankWeights(const Geometry& geometry, const RankPlace& own_place, const RankSource& source,
              std::int64_t first_head);

  LayerWeights& layer(std::int64_t index) {
    return layers[static_cast<std::size_t>(index - place.first_layer)];
  }
  const LayerWeights& layer(std::int64_t index) const {
    return layers[static_cast<std::size_t>(index - place.first_layer)];
  }

  RankPlace place;
  std::optional<Tensor> embed;   // first stage
  std::vector<float> positions;  // first stage, where the geometry learns them
  std::vector<float> slopes;     // ALiBi's, of the rank's heads; empty without ALiBi
  NormWeights final_norm;        // last stage
  LinearWeights lm_head;         // last stage
  std::vector<LayerWeights> layers;
};

}  // namespace shardcheck
