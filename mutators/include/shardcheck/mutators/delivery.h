// What a fault delivers: the shards a faulty subject makes of given weights, beside the right ones.
#pragma once

#include <cstdint>
#include <vector>

#include "shardcheck/mutators/fault.h"

namespace shardcheck {

/// One rank's part of one file tensor.
struct ShardPlace {
  std::int64_t entry = 0;  // index into Layout::entries
  int rank = 0;
  auto operator<=>(const ShardPlace&) const = default;
};

/// Places whose bytes differ, by entry, then rank. Both must be shards of the layout.
std::vector<ShardPlace> differing_places(const Layout& layout, const ShardedTensors& right,
                                         const ShardedTensors& other);

/// The case in which weights of a geometry move between two layouts: what faults are asked about.
Case delivery_case(const Layout& target, const LayoutName& source, DType dtype, std::uint64_t seed);

struct Delivery {
  ShardedTensors right, faulty;
  std::vector<ShardPlace> touched;  // never empty
};

/// Moves `weights` from the case's source to its target with the fault. Throws InvalidInput saying why it
/// cannot be delivered: it does not act on shards, it cannot act on the case or is equivalent there, or its
/// shards are right all the same; UnsupportedLayout.
Delivery deliver(const FaultChoice& choice, const Case& c, const TensorMap& weights);

}  // namespace shardcheck
