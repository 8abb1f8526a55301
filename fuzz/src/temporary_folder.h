// A folder that goes away. Private to the room.
#pragma once

#include <filesystem>

namespace shardcheck::fuzz {

/// In memory where the system has /dev/shm, else where temporary files lie. Throws IoError.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace shardcheck::fuzz
