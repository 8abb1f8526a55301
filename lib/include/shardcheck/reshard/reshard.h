// split, gather and reshard: logical tensors to shards and back, and shards to shards by a plan.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/digest.h"
#include "shardcheck/reshard/plan.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Shards that do not fit their layout, or replicas that differ. Names the tensor, the rank and what is
/// wrong.
class InvalidShards : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// File tensors by the name of their entry, one per rank of the mesh; a rank that does not hold the tensor
/// has an empty one.
using ShardedTensors = std::map<std::string, std::vector<Tensor>, std::less<>>;

/// The full file tensor of one entry: its logical parts in their arrangement, padding zero. One part that is
/// not rearranged is returned as is.
Tensor fuse(const LayoutEntry& entry, const TensorMap& logical);

/// Cuts one full file tensor into one tensor per rank (bytes, never views of the full tensor).
std::vector<Tensor> split_tensor(const PlacedTensor& placed, const Tensor& full);

/// Inverse of `split_tensor`. Throws InvalidShards when a shard is missing, of a wrong shape or dtype, or
/// when replicas are not byte-equal (the rank and the first differing element are named). Partial: the sum
/// over ranks in f64, rounded once.
Tensor gather_tensor(const PlacedTensor& placed, const std::vector<Tensor>& shards);

/// Whether the ranks of the layout hold values that were computed from the elements: shifted ones, or equal
/// shares of a sum. Different elements may then leave equal bytes, and a move from it rounds.
bool holds_computed_values(const Layout& layout);

/// Logical tensors -> shards of a layout. Throws InvalidInput when `full` does not match the geometry.
ShardedTensors split(const TensorMap& full, const Layout& target);

/// Shards -> logical tensors. Extra, missing or misshapen tensors are errors that name them, and so are tied
/// copies that differ; padding is dropped.
TensorMap gather(const ShardedTensors& shards, const Layout& source);

/// Shards -> shards by the direct plan; replicas of the source are compared first. No full tensor is built
/// (Partial entries excepted).
ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target);

/// The same answer the long way: gather, then split.
ShardedTensors reshard_by_gathering(const ShardedTensors& shards, const Layout& source, const Layout& target);

/// The digest of the logical tensors that the shards hold: the same for every layout. Each element counts
/// once, from the lowest rank that holds it; padding and tied copies do not count. Throws InvalidShards when
/// shards do not fit the layout or replicas differ.
WeightDigest digest_of(const Layout& layout, const ShardedTensors& shards);
WeightDigest digest_of(const TensorMap& logical);

/// Throws InvalidShards when the shards of a tied entry hold other bytes than `logical`.
void require_tied(const LayoutEntry& entry, const std::vector<Tensor>& shards, const TensorMap& logical);

/// Throws InvalidShards unless every tensor of the layout is present once per rank with its local shape and
/// one dtype, and nothing else is.
void require_shards_of(const Layout& layout, const ShardedTensors& shards);

}  // namespace shardcheck
