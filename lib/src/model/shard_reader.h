// Reads one rank's local tensors through a consumer's convention, checking shapes on the way.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

class ShardReader {
 public:
  /// `slot` is the rank's place in the lists of `shards` (its index among the local ranks). Throws
  /// InvalidShards when a tensor the consumer reads is missing, has no entry for the slot, or has another
  /// local shape.
  ShardReader(const Geometry& geometry, const Consumer& consumer, int degree, int rank, std::size_t slot,
              const ShardedTensors& shards);

  /// Rows of a role; layer -1 outside layers.
  Tensor rows(std::string_view role, std::int64_t layer) const;
  /// The same as f32 values; empty when the geometry has no such role.
  std::vector<float> values(std::string_view role, std::int64_t layer) const;
  PackedWeights packed(std::string_view role, std::int64_t layer) const;

 private:
  const Tensor& tensor(const std::string& name) const;

  const Geometry& geometry_;
  const Consumer& consumer_;
  int degree_;
  int rank_;
  std::size_t slot_;
  const ShardedTensors& shards_;
};

}  // namespace shardcheck
