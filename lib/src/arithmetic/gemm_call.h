// What gemm.cc hands to the kernel of a SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic/leaf_plan.h"
#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// The root of one tree node: m, n and the number of columns are at least 1; strides are in elements.
struct GemmCall {
  const float* x;
  std::int64_t x_stride;
  std::int64_t m;
  const std::byte* w;  // panel 0 at the first column of the node
  DType dtype;         // of w: f32, bf16 or f16
  std::int64_t panel_stride;
  std::int64_t skipped;  // leading outputs of panel 0 that y has no room for
  std::int64_t n;
  const LeafPlan* plan;
  float* y;
  std::int64_t y_stride;
};

}  // namespace shardcheck
