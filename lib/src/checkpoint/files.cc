#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& file, std::string_view action, const std::error_code& error) {
  throw IoError(fmt::format("{}: cannot {}: {}", file.string(), action, error.message()));
}

[[noreturn]] void fail(const fs::path& file, std::string_view action) {
  fail(file, action, std::error_code(errno, std::generic_category()));
}

/// Repeats a system call that a signal interrupted.
template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// Names are unique within the process and, by O_EXCL, among processes.
fs::path temporary_beside(const fs::path& target) {
  static std::atomic<unsigned> serial{0};
  return folder_of(target) / fmt::format(".shardcheck-{}-{}.tmp", ::getpid(), serial++);
}

struct Temporary {
  fs::path path;
  Descriptor descriptor;
};

Temporary create_temporary(const fs::path& target) {
  constexpr int kAttempts = 100;  // each lost one is a leftover of a killed process with the same id
  for (int attempt = 0;; ++attempt) {
    fs::path candidate = temporary_beside(target);
    Descriptor descriptor(
        retry([&] { return ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }));
    if (descriptor.get() >= 0) return {std::move(candidate), std::move(descriptor)};
    if (errno != EEXIST || attempt == kAttempts) fail(target, "create a temporary file beside it");
  }
}

/// What a link points at: the link stays and its target is replaced.
fs::path followed(fs::path target) {
  std::error_code error;
  if (!fs::is_symlink(target, error)) return target;
  const fs::path resolved = fs::weakly_canonical(target, error);
  return error ? target : resolved;
}

/// Makes a rename in the folder durable. Some file systems cannot sync a folder and say EINVAL.
void sync_folder(const fs::path& folder) {
  const Descriptor opened(retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) fail(folder, "open the folder");
  if (retry([&] { return ::fsync(opened.get()); }) != 0 && errno != EINVAL) fail(folder, "sync the folder");
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::release() noexcept { return std::exchange(fd_, -1); }

OpenedFile open_for_reading(const fs::path& file) {
  // O_NONBLOCK: opening a pipe that has no writer would wait for ever.
  Descriptor descriptor(retry([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (descriptor.get() < 0) fail(file, "open");
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail(file, "read its size");
  if (!S_ISREG(status.st_mode)) throw IoError(fmt::format("{}: not a regular file", file.string()));
  return {std::move(descriptor), static_cast<std::size_t>(status.st_size)};
}

std::shared_ptr<const void> map_file(const OpenedFile& opened, const fs::path& file) {
  const std::size_t size = opened.size_bytes;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.descriptor.get(), 0);
  if (address == MAP_FAILED) fail(file, "map");
  return {address, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); }};
}

AtomicFile::AtomicFile(fs::path target) : target_(followed(std::move(target))) {
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (status.type() == fs::file_type::directory)
    throw IoError(fmt::format("{}: is a folder", target_.string()));
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    // A device or a pipe is written, never replaced.
    descriptor_ = Descriptor(retry([&] { return ::open(target_.c_str(), O_WRONLY | O_CLOEXEC); }));
    if (descriptor_.get() < 0) fail(target_, "open");
    return;
  }
  constexpr fs::perms kWritable = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  if (fs::exists(status) && (status.permissions() & kWritable) == fs::perms::none) {
    throw IoError(fmt::format("{}: is read-only", target_.string()));
  }
  Temporary temporary = create_temporary(target_);
  temporary_ = std::move(temporary.path);
  descriptor_ = std::move(temporary.descriptor);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = retry([&] { return ::write(descriptor_.get(), bytes.data(), bytes.size()); });
    if (written < 0) fail(target_, "write");
    if (written == 0) fail(target_, "write", std::make_error_code(std::errc::no_space_on_device));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    if (::close(descriptor_.release()) != 0) fail(target_, "close");
    return;
  }
  if (retry([&] { return ::fsync(descriptor_.get()); }) != 0) fail(target_, "sync");
  if (::close(descriptor_.release()) != 0) fail(target_, "close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_, "rename the temporary file to it");
  temporary_.clear();
  sync_folder(folder_of(target_));
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, "create the folder", error);
}

void remove_file(const fs::path& file) {
  if (::unlink(file.c_str()) != 0 && errno != ENOENT) fail(file, "remove");
}

bool is_present(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::none) fail(file, "look up", error);
  return status.type() != fs::file_type::not_found;
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::none) fail(folder, "look up", error);
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
    if (count < 0) fail(file, "read");
    if (count == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  throw InvalidCheckpoint(
      fmt::format("{}: longer than {} bytes, which is the limit", file.string(), limit_bytes));
}

}  // namespace shardcheck
