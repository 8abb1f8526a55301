// How a kernel walks the columns of one tree node: leaves from left to right, each followed by the merges
// that are due, with the partial results on a small stack. The walk is the same for every tree shape, so a
// kernel needs no knowledge of trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardcheck/arithmetic/tree.h"

namespace shardcheck {

/// A run of `columns` consecutive columns inside one leaf.
struct LeafStep {
  std::int32_t columns = 0;
  std::int32_t slot = 0;  // stack entry that the leaf occupies before its merges
  std::int32_t merges =
      0;  // after the run: entry = stack[slot - 1] + entry, this often, one slot lower each time
  bool starts_leaf = true;  // else the chain goes on from what stack[slot] holds
};

/// Steps [first_step, last_step) walk `columns` columns from `first_column` on and leave `kept` stack
/// entries.
struct LeafSegment {
  std::size_t first_step = 0, last_step = 0;
  std::int64_t first_column = 0, columns = 0;
  std::int32_t kept = 0;
};

struct LeafPlan {
  /// Steps are cut into segments of about this many columns, so that the inputs and weights of a segment stay
  /// in the caches while they meet. A cut never changes the order of operations.
  static constexpr std::int64_t kSegmentColumns = 256;

  std::vector<LeafStep> steps;
  std::vector<LeafSegment> segments;
  std::int64_t columns = 0;
  std::int32_t stack_depth = 0;  // most entries ever on the stack
  std::int32_t kept_depth = 0;   // most entries kept between segments
};

/// Plan of a whole tree over ceil(k / leaf) leaves of `leaf` columns, the last one possibly short; leaf 0 is
/// one chain. The reference stays valid until the calling thread asks again.
const LeafPlan& leaf_plan(TreeShape shape, std::int64_t k, std::int64_t leaf);

/// merge_schedule(shape, leaves, first, last), kept by the calling thread until it asks again.
const MergeSchedule& kept_schedule(TreeShape shape, std::int64_t leaves, std::int64_t first,
                                   std::int64_t last);

/// The same for all leaves.
const MergeSchedule& whole_schedule(TreeShape shape, std::int64_t leaves);

}  // namespace shardcheck
