// What the GEMM kernel fetches while it computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/base.h"

namespace shardcheck {

// Cache lines to fetch into the second-level cache while a tile computes: line by line across `streams`
// arrays that lie `stride` bytes apart. One or two lines at a time: a burst would keep the tile's own loads
// waiting.
struct FetchAhead {
  static constexpr std::int64_t kLine = 64;  // bytes

  // Of a single stream: what else an innermost loop does takes turns of the multipliers.
  HWY_INLINE void NextOfOne() {
    if (at >= end) return;
    __builtin_prefetch(at, 0, 2);
    at += kLine;
  }

  HWY_INLINE void Next() {
    if (at >= end) return;
    __builtin_prefetch(at + stream * stride, 0, 2);
    if (++stream < streams) return;
    stream = 0;
    at += kLine;
  }

  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  std::ptrdiff_t stride = 0;
  int streams = 0;
  int stream = 0;
};

// Cuts what a group of `tiles` tiles fetches into one share for each: lines across the weights' streams, or
// for packed inputs lines of a single stream, the weights' streams and the inputs being taken one by one.
template <bool kPacked>
class FetchShares {
 public:
  FetchShares(const FetchAhead& weights, const FetchAhead& inputs, std::int64_t tiles)
      : ahead_(weights), inputs_(inputs) {
    std::int64_t lines = Lines(weights);
    if (kPacked)
      lines = lines * weights.streams + Lines(inputs) + weights.streams;  // streams end inside a share
    share_ = (lines + tiles - 1) / tiles * FetchAhead::kLine;
  }

  FetchAhead Next() {
    if (kPacked && at_ >= ahead_.end - ahead_.at) NextStream();
    FetchAhead next = ahead_;
    const std::int64_t bytes = ahead_.end - ahead_.at;
    next.at += std::min(at_, bytes);
    at_ += share_;
    next.end = ahead_.at + std::min(at_, bytes);
    return next;
  }

 private:
  static std::int64_t Lines(const FetchAhead& ahead) {
    return (ahead.end - ahead.at + FetchAhead::kLine - 1) / FetchAhead::kLine;
  }

  void NextStream() {
    at_ = 0;
    if (++ahead_.stream < ahead_.streams) {
      ahead_.at += ahead_.stride;
      ahead_.end += ahead_.stride;
    } else {
      ahead_ = std::exchange(inputs_, {});
    }
  }

  FetchAhead ahead_, inputs_;
  std::int64_t at_ = 0, share_ = 0;
};

}  // namespace shardcheck
