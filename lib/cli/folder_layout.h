// Which layout a checkpoint folder has: from the command line, else from what lies in the folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// What shardcheck.json or else config.json says, the keys of --geometry in place of its own; without either
/// (or with a config.json of no supported family) the keys over the defaults of a case line. Throws
/// InvalidInput naming all three when nothing says it.
Geometry geometry_of(const std::filesystem::path& folder, const std::optional<std::string>& option);

/// "FILE.json:tp4" or "NAME:tp4" -> the table, and ":tp4" or nothing.
std::pair<std::string, std::string> split_layout(const std::string& text);

/// Whether a table is named by its file: the name has a '/' or ends in .json.
bool is_table_file(const std::string& name);

/// A built-in table, or a file where the name has a '/' or ends in .json. Throws InvalidInput, IoError naming
/// the option.
LayoutTable table_at(const std::string& option, const std::string& name);

/// "NAME[:axisN,...]" or "FILE.json[:axisN,...]" for a geometry. Throws InvalidInput naming the option,
/// UnsupportedLayout, IoError.
Layout layout_at(const std::string& option, const std::string& text, const Geometry& geometry);

/// What --from or --layout says, else shardcheck.json, else "hf-llama".
std::string layout_text(const std::filesystem::path& folder, const std::optional<std::string>& option);

/// A checkpoint of any layout: a Hugging Face folder, or rank files under what `from` or shardcheck.json
/// says. Throws InvalidInput, InvalidShards, UnsupportedLayout, IoError.
Checkpoint load_source(const std::filesystem::path& folder, const std::optional<std::string>& from);

/// "64MiB", "5GB", "4096": bytes. Throws InvalidInput naming the option and the range.
std::uint64_t parse_bytes(const std::string& option, const std::string& text, std::uint64_t low,
                          std::uint64_t high);

/// "2.01 GB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace shardcheck
