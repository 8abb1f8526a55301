// Shards compared. Private to the room.
#pragma once

#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

/// Equal in shape, dtype and every byte; copies that share their bytes are not read.
bool same_shard(const Tensor& a, const Tensor& b);

/// Whether `other` has the tensors, shapes and dtypes of `right`, which are shards of the layout.
bool are_shards_of(const Layout& layout, const ShardedTensors& right, const ShardedTensors& other);

}  // namespace shardcheck
