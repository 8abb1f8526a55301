// Signed counts of the tensor code as indices of the standard containers. Private to the library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardcheck {

/// `index`, which is not negative, as a subscript.
constexpr std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace shardcheck
