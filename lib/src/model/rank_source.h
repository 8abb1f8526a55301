// Where a rank's weights come from: the bytes of its shards, or views of a model that is held once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A logical tensor by what it is.
struct TensorRole {
  std::string_view role;
  std::int64_t layer = -1;   // -1 outside layers
  std::int64_t expert = -1;  // -1 outside experts
};

class RankSource {
 public:
  virtual ~RankSource() = default;

  /// Rows of a role.
  virtual Tensor rows(TensorRole role) const = 0;
  /// The same as f32 values; empty when the geometry has no such tensor.
  virtual std::vector<float> values(TensorRole role) const = 0;
  /// The rank's part of a linear layer. `tops` as LinearWeights takes them.
  virtual LinearWeights linear(TensorRole role, std::span<const std::int32_t> tops = {}) const = 0;
};

}  // namespace shardcheck
