// The search for the known faults that leave given shards. Private to the room.
#pragma once

#include <functional>

#include "shardcheck/mutators/explain.h"

namespace shardcheck {

struct SearchProblem {
  const Layout& layout;
  const ShardedTensors& right;
  const ShardedTensors& found;
  const std::vector<ShardPlace>& differing;  // of right and found, never empty
  const TensorMap& weights;
  DType dtype;
};

/// Fills causes, nearest and the counts of `result`.
void search_causes(const SearchProblem& problem, const ExplainOptions& options, Explanation& result);

}  // namespace shardcheck
