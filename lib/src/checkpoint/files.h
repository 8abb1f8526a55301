// Files as the checkpoint code uses them: mapped for reading, replaced atomically. Private to the checkpoint
// folder; every failure is an IoError that names the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Whether the bytes of a new file may wait under no name at all, where the file system can do that.
enum class Naming : std::uint8_t { unnamed_if_possible, named };

/// Replaces a file whole: the bytes go to a file in the same folder, which `commit` syncs and puts in place
/// of the target. Until then it has no name and vanishes with its writer, however that ends; where the file
/// system knows only named files, it is removed by the destructor, and what a killed writer left is
/// overwritten by the next one. A device, a pipe or one of this process's own descriptors (/dev/stdout) is
/// written, never replaced.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target, Naming naming = Naming::unnamed_if_possible);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  void open_target();
  void open_temporary(Naming naming);
  void link_unnamed();

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty without a name
  Descriptor descriptor_;
  bool replaces_ = false;  // else the target itself is written
};

/// Creates a folder and its parents.
void create_folder(const std::filesystem::path& folder);

/// Removes a file if it is there.
void remove_file(const std::filesystem::path& file);

/// Whether an AtomicFile may have left a file of this name when it was killed.
bool is_temporary_name(std::string_view name);

/// True for anything under that name, a dangling link included.
bool is_present(const std::filesystem::path& file);

/// Throws IoError unless `folder` is a folder.
void require_folder(const std::filesystem::path& folder);

}  // namespace shardcheck
