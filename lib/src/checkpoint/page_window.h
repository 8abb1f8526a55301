// Mapped pages of files that are read once: they count as memory of the process until they are given back.
// Private to the checkpoint folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace shardcheck {

/// Most bytes of mapped pages that are held at a time.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;

/// Keeps the mapped pages within a limit by giving all of them back when the next ones do not fit.
class PageWindow {
 public:
  explicit PageWindow(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  PageWindow(const PageWindow&) = delete;
  PageWindow& operator=(const PageWindow&) = delete;
  ~PageWindow() { release(); }

  /// To be called before mapped bytes are read: fetches them where they are not held yet.
  void touch(const std::byte* begin, std::size_t size);
  /// Gives every page back to the system; what is read again comes from the file.
  void release();

 private:
  std::size_t limit_bytes_;
  std::size_t held_bytes_ = 0;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // begin -> end, disjoint
};

}  // namespace shardcheck
