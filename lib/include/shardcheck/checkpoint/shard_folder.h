// Shards on disk: one folder with rank_00000-of-00004.safetensors ... and shardcheck.json, which records
// layout, mesh and geometry.
#pragma once

#include <filesystem>
#include <optional>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

/// "rank_00001-of-00004.safetensors".
std::string shard_file_name(int rank, int degree);

/// Writes every rank's file, then shardcheck.json last, each atomically; an old shardcheck.json is removed
/// before the first file changes. Throws InvalidShards when the shards do not fit the layout, IoError, also
/// when the folder holds rank files of another degree.
void write_shard_folder(const std::filesystem::path& folder, const Layout& layout,
                        const ShardedTensors& shards);

/// What shardcheck.json says, when it is there. Read strictly: format 1, layout and a mesh that agrees with
/// it; geometry (every field) may be absent, other keys belong under "note". Throws InvalidCheckpoint.
struct ShardFolderInfo {
  LayoutName layout;
  std::optional<Geometry> geometry;
};
std::optional<ShardFolderInfo> read_shard_folder_info(const std::filesystem::path& folder);

/// Reads the shards of `layout` and checks names, shapes and dtypes. Missing, extra and truncated files are
/// told apart; shardcheck.json must be there, because a write that was cut off leaves none, and agree with
/// the layout and its geometry. Contents are not judged. Throws InvalidCheckpoint, InvalidShards or IoError.
ShardedTensors read_shard_folder(const std::filesystem::path& folder, const Layout& layout);

/// The same of a folder whose shardcheck.json is absent, or not asked.
ShardedTensors read_rank_files(const std::filesystem::path& folder, const Layout& layout);

}  // namespace shardcheck
