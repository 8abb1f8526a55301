// What both decoders ask of a shard. Private to the room.
#pragma once

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Throws InvalidInput unless the shard has the shape the rank holds of the entry, and the dtype.
void require_decodable(const LayoutEntry& entry, int rank, const Tensor& shard, DType dtype);

}  // namespace shardcheck
