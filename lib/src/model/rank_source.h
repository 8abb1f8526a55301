// Where a rank's weights come from: the bytes of its shards, or views of a model that is held once.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

class RankSource {
 public:
  virtual ~RankSource() = default;

  /// Rows of a role; layer -1 outside layers.
  virtual Tensor rows(std::string_view role, std::int64_t layer) const = 0;
  /// The same as f32 values; empty when the geometry has no such role.
  virtual std::vector<float> values(std::string_view role, std::int64_t layer) const = 0;
  /// The rank's part of a linear layer. `tops` as LinearWeights takes them.
  virtual LinearWeights linear(std::string_view role, std::int64_t layer,
                               std::span<const std::int32_t> tops = {}) const = 0;
};

/// Whether a model of the geometry has tensors of the role.
bool has_role(const Geometry& geometry, std::string_view role);

}  // namespace shardcheck
