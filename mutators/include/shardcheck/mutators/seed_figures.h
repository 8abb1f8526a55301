// Figures of the seed document for its injected bugs, to print beside ours. They were measured on another
// machine, library and random stream, over TOY and TOY_KV4 at every tensor-parallel degree of 2 or more.
#pragma once

#include <span>
#include <string_view>

namespace shardcheck {

struct SeedFigure {
  std::string_view fault;                         // with its argument, as FaultChoice::text() prints it
  double lowest = 0.0, highest = 0.0;             // max |logit difference|
  int lowest_multiple = 0, highest_multiple = 0;  // of the seed's threshold, 1e-3
};

/// One per seed row of the fault catalogue, in the seed's order.
std::span<const SeedFigure> seed_figures();

}  // namespace shardcheck
