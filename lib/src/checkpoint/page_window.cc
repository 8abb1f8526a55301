#include "checkpoint/page_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace shardcheck {
namespace {

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

void advise(std::uintptr_t begin, std::uintptr_t end, int advice) {
  // Advice that the system does not know changes nothing but the speed.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void PageWindow::touch(const std::byte* bytes, std::size_t size) {
  if (size == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(bytes);
  std::uintptr_t begin = address / page_bytes() * page_bytes();
  std::uintptr_t end = (address + size + page_bytes() - 1) / page_bytes() * page_bytes();
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= end) return;
  if (held_bytes_ + (end - begin) > limit_bytes_) {
    release();
    next = ranges_.end();
  }
  advise(begin, end, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
  advise(begin, end, MADV_POPULATE_READ);
#endif
  if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
  while (next != ranges_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    held_bytes_ -= next->second - next->first;
    next = ranges_.erase(next);
  }
  ranges_.emplace(begin, end);
  held_bytes_ += end - begin;
}

void PageWindow::release() {
  for (const auto& [begin, end] : ranges_) advise(begin, end, MADV_DONTNEED);
  ranges_.clear();
  held_bytes_ = 0;
}

}  // namespace shardcheck
