// A file that is written in any order, at offsets. Private to the checkpoint folder; every failure is an
// IoError that names the path and the system's reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/files.h"

namespace shardcheck {

class PositionalFile {
 public:
  /// Opens a file for writing, a new one when `create`, whatever it held before. Links are not followed.
  explicit PositionalFile(std::filesystem::path path, bool create = false);

  /// Makes the file `size_bytes` long, its space reserved where the file system can: a full disk shows now.
  void reserve(std::uint64_t size_bytes);
  /// Writes all of it, then has the system start to store it.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until what was written is on the disk, by whomever, and lets the system forget its copy in memory.
  void sync();

 private:
  [[noreturn]] void fail(std::string_view action) const;

  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace shardcheck
