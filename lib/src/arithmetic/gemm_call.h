// What gemm.cc hands to the kernel of a SIMD target.
#pragma once

#include <cstdint>

#include "arithmetic/leaf_plan.h"

namespace shardcheck {

/// The root of one tree node: m, n and the number of columns are at least 1; strides are in floats.
struct GemmCall {
  const float* x;
  std::int64_t x_stride;
  std::int64_t m;
  const float* w;  // panel 0 at the first column of the node
  std::int64_t panel_stride;
  std::int64_t n;
  const LeafPlan* plan;
  float* y;
  std::int64_t y_stride;
};

}  // namespace shardcheck
