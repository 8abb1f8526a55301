// The right subject of one case, which every fault of the case wraps: it computes each split and reshard
// once.
#pragma once

#include <vector>

#include "shardcheck/case/subject.h"

namespace shardcheck {

/// Calls are told apart by the buffers they are given: the cache keeps a copy of its inputs, and a tensor
/// whose bytes are shared is cloned before it is written, so an equal buffer holds equal bytes. Not
/// thread-safe.
class CachingSubject final : public Subject {
 public:
  ShardedTensors split(const TensorMap& full, const Layout& target) override;
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override;

 private:
  struct Split {
    TensorMap full;
    LayoutName target;
    ShardedTensors result;
  };
  struct Reshard {
    ShardedTensors shards;
    LayoutName source, target;
    ShardedTensors result;
  };
  std::vector<Split> splits_;
  std::vector<Reshard> reshards_;
};

}  // namespace shardcheck
