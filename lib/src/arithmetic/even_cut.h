// How the threads that share a product cut it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardcheck {

/// `count` >= 1 units of work in consecutive parts that are not empty: first a large one of whole groups for
/// every thread, then small ones, of which a thread that is held up leaves some to others. When thread t
/// takes the parts t, t + threads, ..., no two threads differ by more than one unit for each of their small
/// parts.
class EvenCut {
 public:
  EvenCut(std::int64_t count, std::int64_t group, std::int64_t threads) : count_(count), threads_(threads) {
    constexpr std::int64_t kSmallPartsPerThread = 4;
    large_ = count * 3 / (4 * threads) / group * group;
    const std::int64_t rest = count - large_ * threads;
    small_parts_ = std::clamp(rest / group, std::min(threads, rest), kSmallPartsPerThread * threads);
    small_parts_ -= small_parts_ > threads ? small_parts_ % threads : 0;
  }

  /// Part i is [begin(i), begin(i + 1)).
  int parts() const { return static_cast<int>(large_parts() + small_parts_); }
  std::int64_t begin(std::int64_t part) const {
    if (part < large_parts()) return large_ * part;
    const std::int64_t first = large_ * large_parts();
    return first + (count_ - first) * (part - large_parts()) / small_parts_;
  }

 private:
  std::int64_t large_parts() const { return large_ == 0 ? 0 : threads_; }

  std::int64_t count_, threads_, large_ = 0, small_parts_ = 0;
};

}  // namespace shardcheck
