// What a rank holds of a tensor that is the sum over ranks. Private to the room.
#pragma once

#include "shardcheck/reshard/misplacement.h"

namespace shardcheck {

/// Describes the shard of a Partial entry by value: a value that was divided says no more where it came from.
/// `result` has entry and rank. False where the rank is to hold the whole tensor and holds its elements in
/// another order, which are described like any others.
bool describe_addend(const Layout& layout, const ShardedTensors& right, const Tensor& shard,
                     ShardDecoder& decoder, Misplacement& result);

}  // namespace shardcheck
