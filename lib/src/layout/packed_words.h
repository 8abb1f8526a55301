// How values share words and tiles in quantised tensors. Private to the library.
#pragma once

#include <cstdint>
#include <numeric>

namespace shardcheck {

inline constexpr std::int64_t kWordBits = 32;
inline constexpr std::int64_t kAwqColumns = 8;  // 4-bit columns of one word
inline constexpr std::int64_t kMxBlock = 32;    // inputs per E8M0 scale

/// Values that fill whole words together: 8 in one word for 4 bits, 32 in three words for 3 bits.
struct PackUnit {
  std::int64_t values, words;
};

constexpr bool is_packable(int bits) { return bits == 2 || bits == 3 || bits == 4 || bits == 8; }

constexpr PackUnit pack_unit_of(int bits) {
  const std::int64_t common = std::gcd<std::int64_t>(kWordBits, bits);
  return {kWordBits / common, bits / common};
}

/// Elements of swizzled MXFP8 scales for [rows, blocks]: whole tiles of 128x4.
std::int64_t swizzled_size(std::int64_t rows, std::int64_t blocks);
/// Where the scale of (row, block) lies in them (source: cuBLAS, "1D block scaling factors layout").
std::int64_t swizzled_index(std::int64_t row, std::int64_t block, std::int64_t blocks);

}  // namespace shardcheck
