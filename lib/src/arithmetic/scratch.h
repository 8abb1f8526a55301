// Working memory that a thread keeps between calls, so that hot loops never allocate.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace shardcheck {

/// A buffer of floats, 64-byte aligned, that only grows. Contents are lost when it grows.
class Scratch {
 public:
  /// At least `count` floats. Throws std::bad_alloc.
  float* floats(std::int64_t count) {
    if (count > capacity_) grow(count);
    return buffer_.get();
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  void grow(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    buffer_.reset();
    capacity_ = 0;
    buffer_.reset(static_cast<float*>(
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
    if (buffer_ == nullptr) throw std::bad_alloc();
    capacity_ = count;
  }

  struct Free {
    void operator()(float* buffer) const noexcept { std::free(buffer); }
  };
  std::unique_ptr<float, Free> buffer_;
  std::int64_t capacity_ = 0;
};

}  // namespace shardcheck
