#include "shardcheck/layout/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "layout/overloaded.h"

namespace shardcheck {
namespace {

std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw UnsupportedLayout(fmt::format("{} {} * {} does not fit 64 bits", what, a, b));
  }
  return product;
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw UnsupportedLayout(fmt::format("{} {} + {} does not fit 64 bits", what, a, b));
  }
  return sum;
}

/// "256+64+64"; a segment that does not follow the one before it carries its origin: "352@352+352@0".
std::string text_of(const Segments& placement) {
  std::string sizes;
  std::int64_t next = 0;
  for (const Segment& segment : placement.segments) {
    // Unchecked data: a placement can be printed before any shape has refused it.
    std::int64_t length = 0;
    const bool fits = !__builtin_mul_overflow(segment.items, segment.unit, &length);
    if (!sizes.empty()) sizes += '+';
    sizes += fits ? std::to_string(length) : fmt::format("{}*{}", segment.items, segment.unit);
    if (segment.begin != next) sizes += '@' + std::to_string(segment.begin);
    if (segment.replicates) sizes += " replicated";
    if (__builtin_add_overflow(segment.begin, length, &next)) next = -1;
  }
  return fmt::format("segments(dim={}, {})", placement.dim, sizes);
}

std::string text_of(const Shard& shard) {
  std::string text = fmt::format("shard(dim={}", shard.dim);
  if (shard.policy != SplitPolicy::even) text += fmt::format(", {}", to_string(shard.policy));
  if (shard.policy == SplitPolicy::padded) text += fmt::format(" to {}", shard.multiple);
  if (shard.unit != 1) text += fmt::format(", units of {}", shard.unit);
  return text + ')';
}

std::string text_of(const Grouped& grouped) {
  return fmt::format("grouped(dim={}, {} groups of {})", grouped.dim, grouped.interleave.groups,
                     fmt::join(grouped.interleave.units, "+"));
}

}  // namespace

std::string_view to_string(SplitPolicy policy) noexcept {
  switch (policy) {
    case SplitPolicy::even:
      return "even";
    case SplitPolicy::chunk:
      return "chunk";
    case SplitPolicy::balanced:
      return "balanced";
    case SplitPolicy::padded:
      return "padded";
  }
  return "?";
}

std::pair<std::int64_t, std::int64_t> part_of(SplitPolicy policy, std::int64_t length, int degree, int rank) {
  if (length < 0 || degree < 1 || rank < 0 || rank >= degree) {
    throw std::invalid_argument(
        fmt::format("part_of: length {}, degree {}, rank {}: length must not be negative and rank must be in "
                    "[0, degree)",
                    length, degree, rank));
  }
  if (policy == SplitPolicy::padded) {
    throw std::invalid_argument("part_of: parts of a padded length depend on its multiple");
  }
  const std::int64_t floor = length / degree;
  const std::int64_t rest = length % degree;
  if (policy == SplitPolicy::even) {
    if (rest != 0) {
      throw std::invalid_argument(fmt::format("part_of: {} is not divisible by {}", length, degree));
    }
    return {floor * rank, floor * (rank + 1)};
  }
  if (policy == SplitPolicy::balanced) {
    const std::int64_t begin = floor * rank + std::min<std::int64_t>(rank, rest);
    return {begin, begin + floor + (rank < rest ? 1 : 0)};
  }
  const std::int64_t ceiling = floor + (rest != 0 ? 1 : 0);
  // Compared by division: ceiling * rank may exceed 64 bits for the ranks past the end.
  const bool past_end = ceiling == 0 || rank > length / ceiling;
  const std::int64_t begin = past_end ? length : ceiling * rank;
  return {begin, begin + std::min(ceiling, length - begin)};
}

Segments head_partitioned(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t head_dim, int dim) {
  const std::int64_t q = checked_product(n_heads, head_dim, "query rows");
  const std::int64_t kv = checked_product(n_kv_heads, head_dim, "KV rows");
  return {dim,
          {{0, n_heads, head_dim, "n_heads"},
           {q, n_kv_heads, head_dim, "n_kv_heads"},
           {checked_sum(q, kv, "first value row"), n_kv_heads, head_dim, "n_kv_heads"}}};
}

Segments fused_paired(std::pair<std::int64_t, std::int64_t> first,
                      std::pair<std::int64_t, std::int64_t> second, int dim) {
  const auto text = [](const auto& range) { return fmt::format("[{}, {})", range.first, range.second); };
  for (const auto& range : {first, second}) {
    if (range.first < 0 || range.second < range.first) {
      throw UnsupportedLayout(fmt::format("paired range {} is not an ascending range", text(range)));
    }
  }
  const std::int64_t rows = first.second - first.first;
  if (rows != second.second - second.first) {
    throw UnsupportedLayout(
        fmt::format("paired ranges {} and {} differ in length", text(first), text(second)));
  }
  if (first.first < second.second && second.first < first.second) {
    throw UnsupportedLayout(fmt::format("paired ranges {} and {} overlap", text(first), text(second)));
  }
  return {dim, {{first.first, rows, 1, "paired range"}, {second.first, rows, 1, "paired range"}}};
}

std::string to_string(const Placement& placement) {
  return std::visit(
      Overloaded{[](const Replicate&) -> std::string { return "replicate"; },
                 [](const Shard& shard) { return text_of(shard); },
                 [](const Segments& segments) { return text_of(segments); },
                 [](const Strided& strided) {
                   return fmt::format("strided(dim={}, split_factor={})", strided.dim, strided.split_factor);
                 },
                 [](const Grouped& grouped) { return text_of(grouped); },
                 [](const ReplicatedGroups& groups) {
                   return fmt::format("replicated_groups(dim={}, blocks={})", groups.dim, groups.blocks);
                 },
                 [](const Partial& partial) -> std::string {
                   return partial.encoding == Partial::Encoding::first_rank ? "partial(first_rank)"
                                                                            : "partial(equal_share)";
                 }},
      placement);
}

}  // namespace shardcheck
