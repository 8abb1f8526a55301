// Folders of files: what lies under a path, and a folder that goes away.
#pragma once

#include <filesystem>
#include <vector>

namespace shardcheck {

/// Files under a path, sorted; the path itself when it is a file. Throws IoError.
std::vector<std::filesystem::path> files_under(const std::filesystem::path& path);

/// Where files need no disk (/dev/shm); where temporary files lie on systems without such a place.
std::filesystem::path memory_folder();

/// A new folder in `parent`, removed with all that is in it at the end.
class TemporaryFolder {
 public:
  /// Throws IoError.
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace shardcheck
