// Relabellings: permutations of channels and heads that what a layer writes and what it reads again go
// through alike, so that the model stays the same function. They are the witness of shards that hold other
// bytes and are right all the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/model/geometry.h"
#include "shardcheck/model/weights.h"

namespace shardcheck {

/// New place -> old place; empty: everything keeps its place.
using Order = std::vector<std::int64_t>;

/// Of one layer. No member can express a permutation of one tensor alone.
struct LayerRelabelling {
  Order ffn = {};       // channels: rows of gate and up, columns of down
  Order kv_heads = {};  // rows of k and v
  Order heads = {};     // rows of q, columns of o_proj, sinks
};

/// By layer; layers beyond the end keep their order.
using Relabelling = std::vector<LayerRelabelling>;

/// The same relabelling of every layer.
Relabelling in_every_layer(const Geometry& geometry, const LayerRelabelling& layer);

/// Why it does not keep the function, or empty: an order that is no permutation of what it orders, query
/// heads that do not move with the KV head they read, heads that know their place (alibi, latent attention).
std::string why_not_preserved(const Geometry& geometry, const Relabelling& relabelling);

/// The model under the new names. Throws InvalidInput when the function would not be preserved.
TensorMap relabelled(const Geometry& geometry, TensorMap weights, const Relabelling& relabelling);

/// Whether tensors of the role are among those that it moves.
bool moves(const LayerRelabelling& layer, std::string_view role);

/// "heads 2-3,0-1 in rows of q and columns of o_proj": orders as ranges, of the first layer that moves, and
/// how many layers do.
std::string describe(const Relabelling& relabelling);

}  // namespace shardcheck
