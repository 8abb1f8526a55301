// The JSON header of a safetensors file, read in one pass. Private to the checkpoint folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// Entries in file order and metadata, or InvalidCheckpoint naming `origin`, tensor, field and value. Says
/// nothing about offsets and sizes beyond their range.
SafetensorsHeader parse_header_json(std::string_view json, const std::string& origin);

}  // namespace shardcheck
