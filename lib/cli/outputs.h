// Where a command may write: found out before it works for minutes.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace shardcheck {

/// Throws IoError when `file` cannot become a file: it is a folder or write-protected, or its folder is
/// absent or cannot be written. Devices and pipes are left to the write itself.
void require_writable(const std::filesystem::path& file);

/// Throws InvalidInput naming `option` when one of `outputs` is, under any name, an existing file among
/// `inputs` or a checkpoint's file in a folder among them.
void require_no_input_among(std::string_view option, const std::vector<std::filesystem::path>& outputs,
                            const std::vector<std::filesystem::path>& inputs);

}  // namespace shardcheck
