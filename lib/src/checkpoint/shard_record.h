// The record of a folder of shards, shardcheck.json, for code that writes or reads such folders piece by
// piece. Private to the checkpoint folder.
#pragma once

#include <filesystem>
#include <string>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

inline constexpr const char* kRecordFile = "shardcheck.json";

/// The text of shardcheck.json.
std::string shard_record(const Layout& layout);

/// Throws InvalidCheckpoint or IoError unless the folder has a record that agrees with the layout and the
/// files of its ranks, neither fewer nor more. The files are not opened.
void require_shard_folder(const std::filesystem::path& folder, const Layout& layout);

}  // namespace shardcheck
