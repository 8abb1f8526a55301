#include "arithmetic/attention_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "arithmetic/ceil_div.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

// By how much the first block is shorter than the others.
std::int64_t shift_of(const AttentionShape& shape) {
  const std::int64_t rest = shape.block_offset % shape.key_block;
  return rest == 0 ? 0 : shape.key_block - rest;
}

bool between_blocks(const AttentionShape& shape, std::int64_t position) {
  return shape.key_block == 0 || position == 0 || (position + shift_of(shape)) % shape.key_block == 0;
}

}  // namespace

SeenKeys seen_keys(const AttentionShape& shape, std::int64_t row, HeldKeys held, std::int64_t all_keys) {
  const std::int64_t seen = positions_seen(shape, row, all_keys);
  const std::int64_t count = std::clamp(seen - held.first, std::int64_t{0}, held.count);
  if (count == 0) return {};
  if (shape.key_block == 0) return {.count = count, .leaves = 1, .first = 0, .last = 1};
  const std::int64_t shift = shift_of(shape);
  return {.count = count,
          .leaves = ceil_div(seen + shift, shape.key_block),
          .first = (held.first + shift) / shape.key_block,
          .last = ceil_div(held.first + count + shift, shape.key_block)};
}

std::int64_t first_block_size(const AttentionShape& shape, HeldKeys held) {
  if (shape.key_block == 0) return std::max(held.count, std::int64_t{1});
  return held.first == 0 ? shape.key_block - shift_of(shape) : shape.key_block;
}

std::vector<std::int64_t> node_starts(const AttentionShape& shape, HeldKeys held, std::int64_t all_keys) {
  std::vector<std::int64_t> starts = {0};
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    const SeenKeys seen = seen_keys(shape, i, held, all_keys);
    starts.push_back(starts.back() + std::ssize(cover(shape.shape, seen.leaves, seen.first, seen.last)));
  }
  return starts;
}

void divide_by_denominator(const AttentionShape& shape, std::int64_t head, float maximum, const float* root,
                           float* out) {
  float denominator = root[shape.head_dim];
  if (shape.sinks != nullptr) denominator += exp_f32(shape.sinks[head] - softmax_reference(maximum));
  for (std::int64_t j = 0; j < shape.head_dim; ++j) out[j] = root[j] / denominator;
}

void require_counts(std::string_view what, const AttentionShape& shape) {
  for (const auto& [name, value] : {std::pair{"rows", shape.rows},
                                    {"first_query", shape.first_query},
                                    {"keys", shape.keys},
                                    {"first_key", shape.first_key},
                                    {"heads", shape.heads},
                                    {"all_keys", shape.all_keys},
                                    {"head_dim", shape.head_dim},
                                    {"key_block", shape.key_block},
                                    {"block_offset", shape.block_offset}}) {
    if (value < 0) throw std::invalid_argument(fmt::format("{}: {}={} is negative", what, name, value));
  }
}

void require_heads(std::string_view what, const AttentionShape& shape,
                   std::span<const std::int64_t> kv_of_head) {
  if (std::ssize(kv_of_head) != shape.heads) {
    throw std::invalid_argument(
        fmt::format("{}: kv_of_head names {} heads, heads={}", what, kv_of_head.size(), shape.heads));
  }
  for (const std::int64_t kv : kv_of_head) {
    if (kv < 0 || kv >= shape.kv_heads) {
      throw std::invalid_argument(
          fmt::format("{}: kv_of_head holds {}; allowed 0..{}", what, kv, shape.kv_heads - 1));
    }
  }
  require_counts(what, shape);
}

void require_all_keys(std::string_view what, const AttentionShape& shape) {
  if (shape.first_key != 0) {
    throw std::invalid_argument(
        fmt::format("{}: first_key={}; a query sees the keys from 0 on", what, shape.first_key));
  }
  const std::int64_t seen = positions_seen(shape, shape.rows - 1, std::max(shape.all_keys, std::int64_t{1}));
  if (shape.rows > 0 && shape.keys < seen) {
    throw std::invalid_argument(fmt::format("{}: keys={}, but the query at position {} sees {}", what,
                                            shape.keys, shape.first_query + shape.rows - 1, seen));
  }
}

void require_whole_blocks(std::string_view what, const AttentionShape& shape, HeldKeys held,
                          std::int64_t all_keys) {
  if (held.count == 0) return;
  const bool whole =
      between_blocks(shape, held.first) &&
      (between_blocks(shape, held.end()) || positions_seen(shape, shape.rows - 1, all_keys) <= held.end());
  if (!whole) {
    throw std::invalid_argument(fmt::format("{}: keys [{}, {}) cut a block of key_block={} block_offset={}",
                                            what, held.first, held.end(), shape.key_block,
                                            shape.block_offset));
  }
}

void require_maxima(std::string_view what, const AttentionShape& shape, std::span<const float> maxima) {
  if (std::ssize(maxima) != shape.heads * shape.rows) {
    throw std::invalid_argument(fmt::format("{}: {} maxima for {} heads of {} queries", what, maxima.size(),
                                            shape.heads, shape.rows));
  }
}

}  // namespace shardcheck
