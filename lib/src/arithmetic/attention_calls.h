// What attention.cc hands to the kernels of a SIMD target.
#pragma once

#include <cstdint>

namespace shardcheck {

/// The keys and values of one KV head, packed so that every load is a whole aligned vector.
struct AttentionTile {
  std::int64_t positions, padded_positions;
  std::int64_t head_dim;
  std::int64_t first_block, key_block;  // positions of the first block and of each later one
  float scale;
  float* keys;    // [head_dim, padded_positions]
  float* values;  // [positions, value_width]: a row of v, then 1 (which sums to the denominator), 0
  std::int64_t value_width;  // head_dim + 1, padded
  float* stack;              // entries of value_width
};

}  // namespace shardcheck
