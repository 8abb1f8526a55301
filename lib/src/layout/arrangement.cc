#include "shardcheck/layout/arrangement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "shardcheck/layout/layout_table.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Shape of a part as it lies in the file, without the stack.
Shape oriented(const Arrangement& arrangement, Shape shape) {
  if (arrangement.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

/// Dimension of a part that parts follow each other along.
int side_dim(const Arrangement& arrangement) { return arrangement.dim - (arrangement.stacked > 0 ? 1 : 0); }

std::size_t parts_per_item(const Arrangement& arrangement, const std::vector<LogicalTensor>& parts) {
  return parts.size() / at(std::max<std::int64_t>(arrangement.stacked, 1));
}

}  // namespace

std::vector<std::int64_t> part_extents(const Arrangement& arrangement,
                                       const std::vector<LogicalTensor>& parts) {
  std::vector<std::int64_t> extents;
  const int side = side_dim(arrangement);
  for (std::size_t p = 0; p < parts_per_item(arrangement, parts); ++p) {
    const Shape shape = oriented(arrangement, parts[p].shape);
    if (!shape.empty() && (side < 0 || side >= static_cast<int>(shape.size()))) {
      throw InvalidLayout(
          fmt::format("dim: parts of shape {} do not follow each other along dimension {} of the "
                      "file; allowed: {}..{}",
                      to_string(shape), arrangement.dim, arrangement.dim - side,
                      arrangement.dim - side + static_cast<int>(shape.size()) - 1));
    }
    extents.push_back(shape.empty() ? 1 : shape[at(side)]);
  }
  return extents;
}

Shape file_shape(const Arrangement& arrangement, const std::vector<LogicalTensor>& parts) {
  const std::size_t per_item = parts_per_item(arrangement, parts);
  Shape shape = oriented(arrangement, parts.front().shape);
  const int side = side_dim(arrangement);
  const std::vector<std::int64_t> extents = part_extents(arrangement, parts);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Shape part = oriented(arrangement, parts[i].shape);
    const bool beside = i < per_item;
    if (part.empty() || part.size() != shape.size()) {
      throw InvalidLayout(
          fmt::format("parts of {} and {} dimensions do not fit side by side", shape.size(), part.size()));
    }
    const Shape& like = oriented(arrangement, parts[beside ? 0 : i % per_item].shape);
    for (std::size_t d = 0; d < part.size(); ++d) {
      if (part[d] != like[d] && !(beside && static_cast<int>(d) == side)) {
        throw InvalidLayout(fmt::format("shapes {} and {} do not fit side by side along dimension {}",
                                        to_string(like), to_string(part), side));
      }
    }
  }
  const std::int64_t side_extent = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  if (!shape.empty()) {
    shape[at(side)] = arrangement.order.empty() ? side_extent : length_of(arrangement.order);
  }
  if (arrangement.stacked > 0) shape.insert(shape.begin(), arrangement.stacked);
  return shape;
}

std::vector<PartRun> part_runs(const Arrangement& arrangement, const std::vector<std::int64_t>& extents,
                               const std::vector<Run>& runs) {
  const std::vector<Run> stacked = arrangement.order.empty() ? runs : compose_runs(arrangement.order, runs);
  std::vector<std::int64_t> origins(extents.size() + 1, 0);
  std::partial_sum(extents.begin(), extents.end(), origins.begin() + 1);
  std::vector<PartRun> all;
  std::int64_t position = 0;
  for (const Run& run : stacked) {
    if (run.global == kPadding) {
      all.push_back({kPadding, 0, run.length, position});
      position += run.length;
      continue;
    }
    std::int64_t index = run.global;
    const std::int64_t end = run.global + run.length;
    auto part = std::upper_bound(origins.begin(), origins.end(), index) - origins.begin() - 1;
    for (; index < end; ++part) {
      const std::int64_t length = std::min(end, origins.at(at(part + 1))) - index;
      if (length > 0) all.push_back({part, index - origins[at(part)], length, position});
      index += length;
      position += length;
    }
  }
  return all;
}

std::vector<Run> interleaved_rotary(std::int64_t heads, std::int64_t head_dim, std::int64_t rotary) {
  const bool too_many = heads > kMaxRuns || head_dim > kMaxRuns || heads * head_dim > kMaxRuns;
  if (heads < 1 || head_dim < 1 || rotary < 2 || rotary > head_dim || rotary % 2 != 0 || too_many) {
    throw UnsupportedLayout(
        fmt::format("rotary order of {} heads of {} with {} rotated; allowed: an even number up to the head",
                    heads, head_dim, rotary));
  }
  std::vector<Run> runs;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = head * head_dim;
    for (std::int64_t i = 0; i < rotary / 2; ++i) {
      append_run(runs, {first + i, 1});
      append_run(runs, {first + rotary / 2 + i, 1});
    }
    append_run(runs, {first + rotary, head_dim - rotary});
  }
  return runs;
}

}  // namespace shardcheck
