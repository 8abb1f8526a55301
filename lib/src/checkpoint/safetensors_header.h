// The JSON header of a safetensors file, read in one pass. Private to the checkpoint folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// Entries in file order and metadata, or InvalidCheckpoint naming `origin`, tensor, field and value. Says
/// nothing about offsets and sizes beyond their range.
SafetensorsHeader parse_header_json(std::string_view json, const std::string& origin);

/// What stands before the buffer of a file that holds `entries`: the header and its length. Puts the entries
/// in file order, by dtype alignment descending then name, and sets their offsets. Throws InvalidInput as
/// `write_safetensors` does.
std::string file_start(std::vector<SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata);

}  // namespace shardcheck
