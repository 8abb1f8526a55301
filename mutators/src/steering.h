// Moving a drawn case to a table and a degree that a fault acts on.
#pragma once

#include <string_view>

#include "shardcheck/case/case.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::faults {

/// "TABLE:tpN".
LayoutName over_ranks(std::string_view table, int degree);
/// Raises KV heads, channels and vocabulary to the next numbers that `ranks` divides; as many query heads to
/// each KV head as before.
void fit_ranks(Geometry& geometry, int ranks);
/// Source and target that the geometry does not admit any more fall back to one rank, then to the table
/// "seed"; a target that has a consumer must run too.
void settle(Case& c);
/// A target over more ranks than KV heads, in a table that replicates these: no forward pass runs there.
void steer_to_kv_replicas(Case& c, Stream& stream, LayoutName Case::*side);

}  // namespace shardcheck::faults
