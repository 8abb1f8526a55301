// System calls as the checkpoint code makes them. Private to the checkpoint folder.
#pragma once

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace shardcheck {

/// Throws IoError "FILE: cannot ACTION: REASON".
[[noreturn]] void fail_io(const std::filesystem::path& file, std::string_view action,
                          const std::error_code& error);
/// The same with errno's reason.
[[noreturn]] void fail_io(const std::filesystem::path& file, std::string_view action);

/// Repeats a system call that a signal interrupted.
template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Makes renames in the folder durable. Some file systems cannot sync a folder and say EINVAL.
void sync_folder(const std::filesystem::path& folder);

}  // namespace shardcheck
