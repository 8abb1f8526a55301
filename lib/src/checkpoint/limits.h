// Sizes beyond which a JSON file of a checkpoint is refused. Private to the checkpoint folder.
#pragma once

#include <cstddef>

namespace shardcheck {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;  // config.json, shardcheck.json
inline constexpr std::size_t kMaxIndexBytes = std::size_t{64}
                                              << 20;  // an index of 100 000 tensors takes 10 MB

}  // namespace shardcheck
