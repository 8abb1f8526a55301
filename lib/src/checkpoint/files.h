// Files as the checkpoint code uses them: mapped for reading, replaced atomically. Private to the checkpoint
// folder; every failure is an IoError that names the path and the system's reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace shardcheck {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const noexcept { return fd_; }
  int release() noexcept;

 private:
  int fd_;
};

/// A regular file opened for reading. Pipes, devices and folders are refused without blocking.
struct OpenedFile {
  Descriptor descriptor;
  std::size_t size_bytes = 0;
};
OpenedFile open_for_reading(const std::filesystem::path& file);

/// Maps `size_bytes` > 0 bytes read-only; the mapping lives as long as the pointer.
std::shared_ptr<const void> map_file(const OpenedFile& opened, const std::filesystem::path& file);

/// Replaces a file: bytes go to a temporary file beside it, which `commit` syncs and renames. A temporary
/// file that was not committed is removed.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed
  Descriptor descriptor_;
};

/// Creates a folder and its parents.
void create_folder(const std::filesystem::path& folder);

/// Removes a file if it is there.
void remove_file(const std::filesystem::path& file);

/// True for anything under that name, a dangling link included.
bool is_present(const std::filesystem::path& file);

/// Throws IoError unless `folder` is a folder.
void require_folder(const std::filesystem::path& folder);

}  // namespace shardcheck
