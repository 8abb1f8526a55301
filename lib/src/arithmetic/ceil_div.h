// Counting the parts of a length.
#pragma once

#include <concepts>

namespace shardcheck {

/// The least number of parts of `size` > 0 that hold `length` >= 0.
template <std::integral Integer>
constexpr Integer ceil_div(Integer length, Integer size) {
  return (length + size - 1) / size;
}

}  // namespace shardcheck
