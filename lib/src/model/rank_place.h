// Which part of a model one rank of a mesh runs.
#pragma once

#include <cstdint>

#include "shardcheck/model/consumer.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

struct RankPlace {
  int rank = 0;  // in the mesh
  int tp_degree = 1, tp = 0;
  int pp = 0, cp = 0;
  int ep_degree = 1, ep = 0;
  bool first_stage = true, last_stage = true;
  std::int64_t first_layer = 0, last_layer = 0;    // of the stage, one past the last
  std::int64_t first_expert = 0, last_expert = 0;  // of every layer that has experts
  bool tied = false;                               // the head reads the embedding
  LocalExtent extent;

  /// Whether the rank reads a logical tensor.
  bool reads(const LogicalTensor& tensor) const {
    if (tensor.layer >= 0 && (tensor.layer < first_layer || tensor.layer >= last_layer)) return false;
    if (tensor.expert >= 0) return tensor.expert >= first_expert && tensor.expert < last_expert;
    if (tensor.layer >= 0) return true;
    if (tensor.role == "embed") return first_stage || (tied && last_stage);
    return tensor.role == "positions" ? first_stage : last_stage;
  }
};

}  // namespace shardcheck
