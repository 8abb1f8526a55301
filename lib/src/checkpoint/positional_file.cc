#include "checkpoint/positional_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "checkpoint/system_call.h"
#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

/// Larger writes are kept in blocks of pages that only the largest free ones can be cut from. Those are what
/// a virtual machine returns to its host, and using them again costs more than writing them.
constexpr std::uint64_t kWriteBytes = std::uint64_t{256} << 10;

off_t offset_of(std::uint64_t offset) { return static_cast<off_t>(offset); }

/// Errors that go away when somebody makes room.
bool is_lack_of_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

PositionalFile::PositionalFile(std::filesystem::path path, bool create) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0);
  descriptor_ = Descriptor(retry([&] { return ::open(path_.c_str(), flags, 0666); }));
  if (descriptor_.get() < 0) fail("open");
}

void PositionalFile::fail(std::string_view action) const {
  const std::error_code error(errno, std::generic_category());
  if (!is_lack_of_space(error.value())) fail_io(path_, action, error);
  throw IoError(
      fmt::format("{}: cannot {}: {}; make room and repeat the command: it goes on where it stopped",
                  path_.string(), action, error.message()));
}

void PositionalFile::reserve(std::uint64_t size_bytes) {
  const off_t size = offset_of(size_bytes);
  // Not posix_fallocate, which writes every block where the file system cannot reserve.
  if (size > 0 && retry([&] { return ::fallocate(descriptor_.get(), 0, 0, size); }) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS) {
    fail("reserve its size");
  }
  if (retry([&] { return ::ftruncate(descriptor_.get(), size); }) != 0) fail("set its size");
}

void PositionalFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t begin = offset, size = bytes.size();
  while (!bytes.empty()) {
    const std::size_t part = std::min<std::uint64_t>(bytes.size(), kWriteBytes - offset % kWriteBytes);
    const auto written =
        retry([&] { return ::pwrite(descriptor_.get(), bytes.data(), part, offset_of(offset)); });
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  // Where it cannot be started it happens later.
  ::sync_file_range(descriptor_.get(), offset_of(begin), offset_of(size), SYNC_FILE_RANGE_WRITE);
}

void PositionalFile::sync() {
  if (retry([&] { return ::fdatasync(descriptor_.get()); }) != 0) fail("sync");
  // A long run then reuses the memory of a few hundred megabytes. What is not on the disk yet stays, and no
  // error of storing it is taken note of here: the next sync hears of it.
  ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace shardcheck
