// A bijection of 64 bits that spreads every input bit over all of them. Private to the library; digests and
// fingerprints depend on its values.
#pragma once

#include <cstdint>

namespace shardcheck {

/// splitmix64's finaliser (Steele, Lea and Flood 2014; Stafford's variant 13).
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace shardcheck
