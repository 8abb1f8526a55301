// Files of a checkpoint besides its tensors that every reader needs. Private to the checkpoint folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace shardcheck {

/// Names of config.json, generation_config.json, the tokenizer's files and the like in a folder, sorted.
std::vector<std::string> carried_files_in(const std::filesystem::path& folder);

/// Copies them, each atomically. Throws IoError.
void carry_files(const std::filesystem::path& source, const std::vector<std::string>& names,
                 const std::filesystem::path& target);

}  // namespace shardcheck
