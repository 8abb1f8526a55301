// Shards against their placement, and values that a layout stores shifted. Private to the room.
#pragma once

#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Throws InvalidShards unless `shards` is one tensor per rank, of the local shapes and one dtype where the
/// rank holds the tensor.
void require_shards(const PlacedTensor& placed, const std::vector<Tensor>& shards);

/// Throws InvalidShards naming tensor, rank and element unless ranks that hold the same hold equal bytes.
void require_equal_replicas(const PlacedTensor& placed, const std::vector<Tensor>& shards);

/// Whether two ranks of different classes hold one element, as replicated KV heads do.
bool classes_overlap(const PlacedTensor& placed);
/// Whether a placement, or the arrangement before it too, leaves padding on a rank.
bool has_padding(const PlacedTensor& placed);
bool has_padding(const LayoutEntry& entry);

/// The same layout with every Partial tensor held whole instead.
Layout without_partial(Layout layout);

/// The first rank that holds the tensor.
int first_holder(const PlacedTensor& placed);

/// Every value plus `shift`, rounded once; the tensor itself for 0. Throws UnsupportedLayout naming `name`
/// for a dtype other than f32, bf16 and f16.
Tensor shifted(const std::string& name, const Tensor& tensor, float shift);

}  // namespace shardcheck
