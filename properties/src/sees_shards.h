// Whether an oracle of logits sees given shards.
#pragma once

#include <stdexcept>

#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {

/// Ranks that route tokens to other experts bring other sizes to a collective, which refuses them: that is
/// seen.
inline bool sees_shards(Workbench& bench, Oracle oracle, Subject& subject, const ShardedTensors& shards) {
  try {
    return bench.judge_shards(oracle, subject, shards).verdict == Verdict::failed;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

}  // namespace shardcheck
