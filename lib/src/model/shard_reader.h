// Reads one rank's local tensors through a consumer's convention, checking shapes on the way.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/rank_place.h"
#include "model/rank_source.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

class ShardReader final : public RankSource {
 public:
  /// `slot` is the rank's place in the lists of `shards` (its index among the local ranks). Throws
  /// InvalidShards when a tensor the consumer reads is missing, has no entry for the slot, or has another
  /// local shape.
  ShardReader(const Geometry& geometry, const Consumer& consumer, const RankPlace& place, std::size_t slot,
              const ShardedTensors& shards, Arithmetic arithmetic);

  Tensor rows(TensorRole role) const override;
  std::vector<float> values(TensorRole role) const override;
  LinearWeights linear(TensorRole role, std::span<const std::int32_t> tops) const override;

 private:
  const Tensor& tensor(const std::string& name) const;

  const Geometry& geometry_;
  const Consumer& consumer_;
  RankPlace place_;
  std::size_t slot_;
  const ShardedTensors& shards_;
  Arithmetic arithmetic_;
  std::set<std::string, std::less<>> names_;  // of the logical tensors the rank reads
};

}  // namespace shardcheck
