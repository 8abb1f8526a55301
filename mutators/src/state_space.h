// A state-space layer (Mamba 2) over a tensor-parallel group.
#pragma once

#include "cut_tensors.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

struct StateSpaceLayer {
  std::string name;
  std::int64_t heads = 1, head_dim = 1, groups = 1, state = 1, d_model = 1;
  std::int64_t inner() const { return heads * head_dim; }
  /// Rows of B, and of C.
  std::int64_t group_rows() const { return groups * state; }
};

/// layers.0 has state groups for every rank, layers.1 fewer than ranks, so that they are replicated.
std::vector<StateSpaceLayer> state_space_layers(const Case& c);

/// NAME.in_proj rows [z, x, B, C, dt], NAME.conv1d channels [x, B, C], one value per head or channel of
/// NAME.dt_bias and NAME.norm, and NAME.out_proj, cut along its columns.
std::vector<CutTensor> state_space_tensors(const StateSpaceLayer& layer);

/// What every rank computes with.
ShardedTensors loaded_state_space(const Case& c, const Loader& loader);

}  // namespace shardcheck::effective
