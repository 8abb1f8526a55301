// What kernels.cc hands to the kernels of a SIMD target.
#pragma once

#include <cstdint>

#include "shardcheck/arithmetic/tree.h"

namespace shardcheck {

/// Padding of arrays that kernels read in whole vectors: no target has more lanes.
constexpr std::int64_t kMaxLanes = 16;

constexpr std::int64_t padded_to_lanes(std::int64_t count) {
  return (count + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

struct SumOfSquaresCall {
  const float* x;
  std::int64_t rows, width;
  std::int64_t leaf;
  const MergeSchedule* schedule;
  float* stack;  // schedule->stack_depth entries of kMaxLanes
  float* sums;
};

}  // namespace shardcheck
