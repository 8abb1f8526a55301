// Random numbers that are the same on every compiler, standard library and processor: a counter-based
// generator (Philox4x32-10, Salmon et al. 2011) with our own distributions. Element i of a fill depends
// on (key, i) only, so any part of a tensor can be produced on its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace shardcheck {

/// 64-bit key for a purpose: mixes a seed with a name, so that adding a consumer changes no other's
/// numbers. Stable for ever (XXH3 64 of the name, seeded).
std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept;

/// A sequential reader of one counter-based stream.
class Stream {
 public:
  explicit Stream(std::uint64_t key) noexcept : key_(key) {}
  Stream(std::uint64_t seed, std::string_view name) noexcept : key_(stream_key(seed, name)) {}

  std::uint32_t next_u32() noexcept;
  std::uint64_t next_u64() noexcept;

  /// Uniform integer in [low, high], unbiased. Throws std::invalid_argument when low > high.
  std::int64_t integer(std::int64_t low, std::int64_t high);

  /// Uniform in [0, 1), a multiple of 2^-24: exact in f32.
  float unit() noexcept;

  /// True with probability numerator/denominator. Throws std::invalid_argument unless
  /// 0 <= numerator <= denominator and denominator > 0.
  bool chance(std::int64_t numerator, std::int64_t denominator);

  /// One element of a non-empty list. Throws std::invalid_argument on an empty one.
  template <typename T>
  const T& pick(const std::vector<T>& options) {
    return options[pick_index(options.size())];
  }

  /// A uniform random order of the values, in place.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1],
                values[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(i) - 1))]);
  }

  /// An independent stream: children with different names never share numbers.
  Stream child(std::string_view name) const noexcept { return Stream(key_, name); }

 private:
  std::size_t pick_index(std::size_t size);

  std::uint64_t key_;
  std::uint64_t counter_ = 0;  // next 32-bit word of the stream
};

/// Philox4x32-10 block `counter` under `key` (exposed for its published test vectors).
void philox4x32_10(const std::uint32_t counter[4], const std::uint32_t key[2], std::uint32_t out[4]) noexcept;

/// out[i] = mean + stddev * z(key, first + i), z standard normal by Box-Muller over our own log, sin and
/// cos (f32, one fused multiply-add for the scaling). The same bits on every SIMD target.
void fill_normal(std::span<float> out, std::uint64_t key, float mean, float stddev, std::uint64_t first = 0);

/// out[i] = uniform in [low, high), element i a function of (key, first + i) alone; all `low` when the bounds
/// are equal. Throws std::invalid_argument unless low <= high and high - low is finite.
void fill_uniform(std::span<float> out, std::uint64_t key, float low, float high, std::uint64_t first = 0);

}  // namespace shardcheck
