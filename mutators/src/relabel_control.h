// Shared by the relabel controls: delivering the shards of a model under other names.
#pragma once

#include "plan_fault.h"

namespace shardcheck::faults {

/// Replaces the shards of the tensors that the relabelling moves by those of the relabelled model.
void deliver_relabelled(const Layout& target, const Relabelling& relabelling, ShardedTensors& shards);

/// 1, 2, ..., count - 1, 0.
Order rotated_by_one(std::int64_t count);

}  // namespace shardcheck::faults
