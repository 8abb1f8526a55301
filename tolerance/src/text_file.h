// Reading a small text file whole.
#pragma once

#include <filesystem>
#include <string>

namespace shardcheck {

/// Throws InvalidInput naming the file when it cannot be read or is larger than 16 MiB.
std::string read_text_file(const std::filesystem::path& file);

}  // namespace shardcheck
