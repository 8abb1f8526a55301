#include "shardcheck/layout/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace shardcheck {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UnsupportedLayout(name + ": " + why);
}

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

/// What the checks of a placement need to know and to name.
struct Subject {
  const std::string& name;
  const Shape& shape;
  int degree;
};

std::int64_t extent_of(const Subject& subject, int dim) {
  if (dim < 0 || dim >= static_cast<int>(subject.shape.size())) {
    refuse(subject.name,
           fmt::format("dimension {} is outside the shape {}", dim, shardcheck::to_string(subject.shape)));
  }
  return subject.shape[static_cast<std::size_t>(dim)];
}

void check(const Subject& subject, const Shard& shard) {
  const std::int64_t extent = extent_of(subject, shard.dim);
  if (shard.policy == SplitPolicy::even && extent % subject.degree != 0) {
    refuse(subject.name,
           fmt::format("extent {} of dimension {} of {} is not divisible by TP degree {}", extent, shard.dim,
                       shardcheck::to_string(subject.shape), subject.degree));
  }
}

std::string label_of(const Segments& placement, std::size_t index) {
  const std::string& label = placement.segments[index].label;
  return label.empty() ? fmt::format("segment {}", index) : label;
}

void check_segment(const Subject& subject, const Segments& placement, std::size_t index,
                   std::int64_t extent) {
  const Segment& segment = placement.segments[index];
  const std::string label = label_of(placement, index);
  if (segment.items < 0 || segment.unit < 1 || segment.begin < 0) {
    refuse(subject.name,
           fmt::format("{}: a segment needs begin >= 0, items >= 0 and unit >= 1, got {}, {}, {}", label,
                       segment.begin, segment.items, segment.unit));
  }
  std::int64_t length = 0;
  if (__builtin_mul_overflow(segment.items, segment.unit, &length) || length > extent ||
      segment.begin > extent - length) {
    refuse(subject.name, fmt::format("{}: {} items of {} from {} leave dimension {} of extent {} in {}",
                                     label, segment.items, segment.unit, segment.begin, placement.dim, extent,
                                     shardcheck::to_string(subject.shape)));
  }
  if (segment.items % subject.degree != 0) {
    refuse(subject.name,
           fmt::format("{}={} is not divisible by TP degree {}", label, segment.items, subject.degree));
  }
}

void check_coverage(const Subject& subject, const Segments& placement, std::int64_t extent) {
  std::vector<Run> ranges;
  for (const Segment& segment : placement.segments) {
    if (segment.items > 0) ranges.push_back({segment.begin, segment.length()});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Run& a, const Run& b) { return a.global < b.global; });
  std::int64_t covered = 0;
  for (const Run& range : ranges) {
    if (range.global < covered) {
      refuse(subject.name,
             fmt::format("segments overlap at index {} of dimension {}", range.global, placement.dim));
    }
    if (range.global > covered) break;
    covered += range.length;
  }
  if (covered != extent) {
    refuse(subject.name, fmt::format("no segment covers index {} of dimension {} (extent {}, TP degree {})",
                                     covered, placement.dim, extent, subject.degree));
  }
}

void check(const Subject& subject, const Segments& placement) {
  const std::int64_t extent = extent_of(subject, placement.dim);
  for (std::size_t i = 0; i < placement.segments.size(); ++i) {
    check_segment(subject, placement, i, extent);
  }
  check_coverage(subject, placement, extent);
}

void append(std::vector<Run>& runs, Run run) {
  if (run.length == 0) return;
  if (!runs.empty() && runs.back().global + runs.back().length == run.global) {
    runs.back().length += run.length;
  } else {
    runs.push_back(run);
  }
}

Run run_of(std::pair<std::int64_t, std::int64_t> range) { return {range.first, range.second - range.first}; }

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
    if (__builtin_add_overflow(segment.begin, length, &next)) next = -1;
  }
  return fmt::format("segments(dim={}, {})", placement.dim, sizes);
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
                 [](const Shard& shard) {
                   return shard.policy == SplitPolicy::even
                              ? fmt::format("shard(dim={})", shard.dim)
                              : fmt::format("shard(dim={}, {})", shard.dim, to_string(shard.policy));
                 },
                 [](const Segments& segments) { return text_of(segments); },
                 [](const Partial& partial) -> std::string {
                   return partial.encoding == Partial::Encoding::first_rank ? "partial(first_rank)"
                                                                            : "partial(equal_share)";
                 }},
      placement);
}

std::int64_t Selection::length() const {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0},
                         [](std::int64_t sum, const Run& run) { return sum + run.length; });
}

PlacedTensor::PlacedTensor(std::string name, Shape shape, Placement placement, int degree)
    : name_(std::move(name)), shape_(std::move(shape)), placement_(std::move(placement)), degree_(degree) {
  if (degree_ < 1) refuse(name_, fmt::format("TP degree {} is below 1", degree_));
  if (std::any_of(shape_.begin(), shape_.end(), [](std::int64_t extent) { return extent < 0; })) {
    refuse(name_, fmt::format("shape {} has a negative extent", shardcheck::to_string(shape_)));
  }
  const Subject subject{name_, shape_, degree_};
  std::visit(Overloaded{[](const Replicate&) {}, [&](const Shard& shard) { check(subject, shard); },
                        [&](const Segments& segments) { check(subject, segments); }, [](const Partial&) {}},
             placement_);
}

Selection PlacedTensor::selection(int rank) const {
  if (rank < 0 || rank >= degree_) {
    throw std::out_of_range(fmt::format("{}: rank {} is not in [0, {})", name_, rank, degree_));
  }
  const Selection whole{};
  return std::visit(
      Overloaded{
          [&](const Replicate&) { return whole; },
          [&](const Shard& shard) {
            Selection selection{shard.dim, {}};
            append(selection.runs,
                   run_of(part_of(shard.policy, shape_[static_cast<std::size_t>(shard.dim)], degree_, rank)));
            return selection;
          },
          [&](const Segments& placement) {
            Selection selection{placement.dim, {}};
            for (const Segment& segment : placement.segments) {
              const std::int64_t length = segment.length() / degree_;
              append(selection.runs, {segment.begin + rank * length, length});
            }
            return selection;
          },
          [&](const Partial&) { return whole; }},
      placement_);
}

Shape PlacedTensor::local_shape(int rank) const {
  const Selection local = selection(rank);
  Shape shape = shape_;
  if (local.dim >= 0) shape[static_cast<std::size_t>(local.dim)] = local.length();
  return shape;
}

}  // namespace shardcheck
