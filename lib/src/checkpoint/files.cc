#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "checkpoint/system_call.h"
#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

constexpr int kTemporaryNames = 100;  // writers of one target at a time

/// Names that belong to the target, short even where the target's is not.
fs::path temporary_beside(const fs::path& target, int slot) {
  const std::string name = target.filename().string();
  return folder_of(target) /
         fmt::format(".shardcheck-{:016x}-{}.tmp", XXH3_64bits(name.data(), name.size()), slot);
}

bool all_of_set(std::string_view text, std::string_view set) {
  return !text.empty() && text.find_first_not_of(set) == text.npos;
}

bool is_file_at(int descriptor, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// Opens a temporary file that no living writer holds, and holds it: a lock tells their files from leftovers
/// of killed ones. -1 and errno otherwise.
Descriptor open_alone(const fs::path& path, int flags) {
  Descriptor descriptor(
      retry([&] { return ::open(path.c_str(), flags | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666); }));
  if (descriptor.get() < 0) return descriptor;
  if (retry([&] { return ::flock(descriptor.get(), LOCK_EX | LOCK_NB); }) != 0) return Descriptor();
  if (is_file_at(descriptor.get(), path)) return descriptor;
  // Its writer put it in place between the two calls.
  errno = EWOULDBLOCK;
  return Descriptor();
}

/// Whether another name may be free: this one is a living writer's, another user's or no plain file.
bool is_taken(int error) {
  return error == EWOULDBLOCK || error == EACCES || error == ELOOP || error == EISDIR || error == ENXIO;
}

void remove_leftover(const fs::path& path) {
  const Descriptor held = open_alone(path, 0);
  if (held.get() >= 0) ::unlink(path.c_str());
}

/// Path under which the kernel names an open file.
fs::path descriptor_path(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

/// A file without a name in the folder; -1 where the file system or the lack of /proc rules one out.
Descriptor open_unnamed(const fs::path& folder) {
#ifdef O_TMPFILE
  Descriptor descriptor(
      retry([&] { return ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666); }));
  const bool usable = descriptor.get() >= 0 &&
                      ::access(descriptor_path(descriptor.get()).c_str(), F_OK) == 0 &&
                      ::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0;
  if (usable) return descriptor;
#endif
  return Descriptor();
}

/// The number behind a name in this process's table of descriptors, such as /proc/self/fd/1.
std::optional<int> own_descriptor(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(folder_of(path), error);
  if (error || folder != fs::path(fmt::format("/proc/{}/fd", ::getpid()))) return std::nullopt;
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (status != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

/// Follows links, one at a time so that a name of an own descriptor is seen on the way: the links stay, what
/// they point at is written.
fs::path followed(fs::path target) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::error_code error;
  for (int link = 0; link < kMostLinks && !own_descriptor(target) && fs::is_symlink(target, error); ++link) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = folder_of(target) / next;  // an absolute `next` replaces the folder
  }
  return target;
}

}  // namespace

void fail_io(const fs::path& file, std::string_view action, const std::error_code& error) {
  throw IoError(fmt::format("{}: cannot {}: {}", file.string(), action, error.message()));
}

void fail_io(const fs::path& file, std::string_view action) {
  fail_io(file, action, std::error_code(errno, std::generic_category()));
}

void sync_folder(const fs::path& folder) {
  const Descriptor opened(retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) fail_io(folder, "open the folder");
  if (retry([&] { return ::fsync(opened.get()); }) != 0 && errno != EINVAL)
    fail_io(folder, "sync the folder");
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::release() noexcept { return std::exchange(fd_, -1); }

OpenedFile open_for_reading(const fs::path& file) {
  // O_NONBLOCK: opening a pipe that has no writer would wait for ever.
  Descriptor descriptor(retry([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (descriptor.get() < 0) fail_io(file, "open");
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_io(file, "read its size");
  if (!S_ISREG(status.st_mode)) throw IoError(fmt::format("{}: not a regular file", file.string()));
  return {std::move(descriptor), static_cast<std::size_t>(status.st_size)};
}

std::shared_ptr<const void> map_file(const OpenedFile& opened, const fs::path& file) {
  const std::size_t size = opened.size_bytes;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.descriptor.get(), 0);
  if (address == MAP_FAILED) fail_io(file, "map");
  return {address, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); }};
}

AtomicFile::AtomicFile(fs::path target, Naming naming) : target_(followed(std::move(target))) {
  if (const auto own = own_descriptor(target_)) {
    descriptor_ = Descriptor(retry([&] { return ::fcntl(*own, F_DUPFD_CLOEXEC, 0); }));
    if (descriptor_.get() < 0) fail_io(target_, "open");
    return;
  }
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (status.type() == fs::file_type::directory)
    throw IoError(fmt::format("{}: is a folder", target_.string()));
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    open_target();
    return;
  }
  constexpr fs::perms kWritable = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  if (fs::exists(status) && (status.permissions() & kWritable) == fs::perms::none) {
    throw IoError(fmt::format("{}: is read-only", target_.string()));
  }
  open_temporary(naming);
}

void AtomicFile::open_target() {
  descriptor_ = Descriptor(retry([&] { return ::open(target_.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (descriptor_.get() < 0) fail_io(target_, "open");
}

void AtomicFile::open_temporary(Naming naming) {
  replaces_ = true;
  if (naming == Naming::unnamed_if_possible) descriptor_ = open_unnamed(folder_of(target_));
  for (int slot = 0; descriptor_.get() < 0 && slot < kTemporaryNames; ++slot) {
    fs::path candidate = temporary_beside(target_, slot);
    descriptor_ = open_alone(candidate, O_CREAT);
    if (descriptor_.get() >= 0) {
      temporary_ = std::move(candidate);
    } else if (!is_taken(errno)) {
      break;
    }
  }
  if (descriptor_.get() < 0) fail_io(target_, "create a temporary file beside it");
  if (::ftruncate(descriptor_.get(), 0) != 0) fail_io(target_, "empty the temporary file beside it");
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = retry([&] { return ::write(descriptor_.get(), bytes.data(), bytes.size()); });
    if (written < 0) fail_io(target_, "write");
    if (written == 0) fail_io(target_, "write", std::make_error_code(std::errc::no_space_on_device));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

/// Gives the whole, synced file a name. A link cannot replace a file, so it then gets a temporary name first.
void AtomicFile::link_unnamed() {
  const fs::path opened = descriptor_path(descriptor_.get());
  const auto link_as = [&](const fs::path& name) {
    return ::linkat(AT_FDCWD, opened.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_as(target_)) return;
  for (int attempt = 0; errno == EEXIST && attempt < 2 * kTemporaryNames; ++attempt) {
    fs::path candidate = temporary_beside(target_, attempt / 2);
    if (link_as(candidate)) {
      temporary_ = std::move(candidate);
      return;
    }
    if (errno == EEXIST && attempt % 2 == 0) remove_leftover(candidate);
    errno = EEXIST;
  }
  fail_io(target_, "name the file that replaces it");
}

void AtomicFile::commit() {
  if (!replaces_) {
    if (::close(descriptor_.release()) != 0) fail_io(target_, "close");
    return;
  }
  if (retry([&] { return ::fsync(descriptor_.get()); }) != 0) fail_io(target_, "sync");
  if (temporary_.empty()) link_unnamed();
  if (!temporary_.empty() && ::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail_io(target_, "rename the temporary file to it");
  temporary_.clear();
  if (::close(descriptor_.release()) != 0) fail_io(target_, "close");
  sync_folder(folder_of(target_));
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_io(folder, "create the folder", error);
}

void remove_file(const fs::path& file) {
  if (::unlink(file.c_str()) != 0 && errno != ENOENT) fail_io(file, "remove");
}

bool is_temporary_name(std::string_view name) {
  constexpr std::string_view kStart = ".shardcheck-", kEnd = ".tmp";
  constexpr std::size_t kHashDigits = 16;
  if (!name.starts_with(kStart) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kStart.size());
  name.remove_suffix(kEnd.size());
  return name.size() > kHashDigits && name[kHashDigits] == '-' &&
         all_of_set(name.substr(0, kHashDigits), "0123456789abcdef") &&
         all_of_set(name.substr(kHashDigits + 1), "0123456789");
}

bool is_present(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::none) fail_io(file, "look up", error);
  return status.type() != fs::file_type::not_found;
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::none) fail_io(folder, "look up", error);
  if (status.type() == fs::file_type::not_found) {
    throw IoError(fmt::format("{}: no such folder", folder.string()));
  }
  if (status.type() != fs::file_type::directory) {
    throw IoError(fmt::format("{}: not a folder", folder.string()));
  }
}

void write_text_atomically(const fs::path& file, std::string_view text) {
  AtomicFile target(file);
  target.write(text);
  target.commit();
}

std::string read_text(const fs::path& file, std::size_t limit_bytes) {
  const OpenedFile opened = open_for_reading(file);
  std::string text;
  std::array<char, 1 << 16> chunk;
  // The size of the file is not trusted: it may grow while it is read.
  while (text.size() <= limit_bytes) {
    const auto count = retry([&] { return ::read(opened.descriptor.get(), chunk.data(), chunk.size()); });
    if (count < 0) fail_io(file, "read");
    if (count == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  throw InvalidCheckpoint(
      fmt::format("{}: longer than {} bytes, which is the limit", file.string(), limit_bytes));
}

}  // namespace shardcheck
