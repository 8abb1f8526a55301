// Scalar definitions of the sums of arithmetic `tree`, written from the rule alone: what the kernels must
// equal bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::oracle {

inline std::int64_t split(TreeShape shape, std::int64_t first, std::int64_t last) {
  const std::int64_t n = last - first;
  if (shape == TreeShape::linear) return last - 1;
  if (n % 2 == 0) return first + n / 2;
  std::int64_t power = 1;
  while (power * 2 < n) power *= 2;
  return first + power;
}

/// Root of the node [first, last), leaves being values of `leaf(l)`.
template <typename Leaf>
float root(TreeShape shape, std::int64_t first, std::int64_t last, const Leaf& leaf) {
  if (last - first == 1) return leaf(first);
  const std::int64_t middle = split(shape, first, last);
  const float left = root(shape, first, middle, leaf);
  return left + root(shape, middle, last, leaf);
}

/// Sum over k of a(k) * b(k): chains of fused multiply-adds in leaves of `leaf` (0: one leaf), then the tree.
template <typename A, typename B>
float dot(TreeShape shape, std::int64_t k, std::int64_t leaf, const A& a, const B& b) {
  if (k == 0) return 0.0F;
  const std::int64_t width = leaf == 0 ? k : leaf;
  return root(shape, 0, (k + width - 1) / width, [&](std::int64_t l) {
    float sum = 0.0F;
    for (std::int64_t i = l * width; i < std::min(k, (l + 1) * width); ++i) sum = std::fma(a(i), b(i), sum);
    return sum;
  });
}

/// Patterns, so that signed zeros count and NaN equals itself.
inline std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> patterns;
  for (const float value : values) patterns.push_back(std::bit_cast<std::uint32_t>(value));
  return patterns;
}

inline std::vector<float> random_values(Stream& stream, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_normal(values, stream.next_u64(), 0.0F, 1.0F);
  return values;
}

/// Forces a SIMD target for the lifetime of the object.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) { force_simd_target(name); }
  ~ForcedTarget() { force_simd_target(""); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

/// Runs `check` on the best target and then on every single one.
inline void on_every_target(const std::function<void()>& check) {
  check();
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    const ForcedTarget forced(target);
    check();
  }
}

}  // namespace shardcheck::oracle
