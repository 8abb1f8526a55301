#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "layout/overloaded.h"
#include "shardcheck/layout/placement.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxSplitFactor = std::int64_t{1} << 16;
constexpr std::int64_t kMaxMultiple = std::int64_t{1} << 24;

/// One placement that meets what the ones before it left of a tensor on a rank: the shape there, the axis and
/// its degree.
class Cut {
 public:
  Cut(const std::string& name, const Shape& shape, Axis axis, int degree)
      : name_(name), shape_(shape), axis_(axis), degree_(degree) {}

  /// Throws UnsupportedLayout when the placement does not fit; returns the dimension it cuts, -1 for none.
  int check(const Placement& placement) const {
    return std::visit(Overloaded{[](const Replicate&) { return -1; }, [](const Partial&) { return -1; },
                                 [this](const auto& cut) {
                                   check(cut);
                                   return cut.dim;
                                 }},
                      placement);
  }

  /// What the rank at `coordinate` keeps of the dimension that a checked placement cuts.
  std::vector<Run> runs(const Placement& placement, int coordinate) const {
    return std::visit(Overloaded{[](const Replicate&) { return std::vector<Run>{}; },
                                 [](const Partial&) { return std::vector<Run>{}; },
                                 [&](const auto& cut) { return runs(cut, coordinate); }},
                      placement);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw UnsupportedLayout(name_ + ": " + why); }

  /// "TP degree 4".
  std::string degree_text() const {
    std::string axis(to_string(axis_));
    std::transform(axis.begin(), axis.end(), axis.begin(), [](char c) { return static_cast<char>(c - 32); });
    return fmt::format("{} degree {}", axis, degree_);
  }

  std::int64_t extent_of(int dim) const {
    if (dim < 0 || dim >= static_cast<int>(shape_.size())) {
      refuse(fmt::format("dimension {} is outside the shape {}", dim, shardcheck::to_string(shape_)));
    }
    return shape_[static_cast<std::size_t>(dim)];
  }

  [[noreturn]] void refuse_extent(std::int64_t extent, int dim, std::string_view divisor) const {
    refuse(fmt::format("extent {} of dimension {} of {} is not divisible by {}", extent, dim,
                       shardcheck::to_string(shape_), divisor));
  }

  void check(const Shard& shard) const {
    const std::int64_t extent = extent_of(shard.dim);
    if (shard.unit < 1 || extent % shard.unit != 0) {
      refuse_extent(extent, shard.dim, fmt::format("the unit {} ({})", shard.unit, degree_text()));
    }
    if (shard.policy == SplitPolicy::even && extent / shard.unit % degree_ != 0) {
      if (shard.unit == 1) refuse_extent(extent, shard.dim, degree_text());
      refuse(fmt::format("{} units of {} along dimension {} of {} are not divisible by {}",
                         extent / shard.unit, shard.unit, shard.dim, shardcheck::to_string(shape_),
                         degree_text()));
    }
    if (shard.multiple < 1 || shard.multiple > kMaxMultiple) {
      refuse(fmt::format("multiple {} of a padded part; allowed: 1..{}", shard.multiple, kMaxMultiple));
    }
  }
  std::vector<Run> runs(const Shard& shard, int coordinate) const {
    const std::int64_t extent = extent_of(shard.dim);
    std::vector<Run> kept;
    if (shard.policy != SplitPolicy::padded) {
      const auto [begin, end] = part_of(shard.policy, extent / shard.unit, degree_, coordinate);
      append_run(kept, {begin * shard.unit, (end - begin) * shard.unit});
      return kept;
    }
    const std::int64_t chunk = extent / degree_ + (extent % degree_ != 0 ? 1 : 0);
    const std::int64_t share = (chunk + shard.multiple - 1) / shard.multiple * shard.multiple;
    const std::int64_t begin = share == 0 || coordinate > extent / share ? extent : share * coordinate;
    const std::int64_t filled = std::min(share, extent - begin);
    append_run(kept, {begin, filled});
    append_run(kept, {kPadding, share - filled});
    return kept;
  }

  void check(const Strided& strided) const {
    extent_of(strided.dim);
    const std::int64_t most = std::min(kMaxSplitFactor, kMaxRuns / degree_);
    if (strided.split_factor < 1 || strided.split_factor > most) {
      refuse(fmt::format("split factor {}; allowed at {}: 1..{}", strided.split_factor, degree_text(), most));
    }
  }
  std::vector<Run> runs(const Strided& strided, int coordinate) const {
    const std::int64_t extent = extent_of(strided.dim);
    const auto factor = static_cast<int>(strided.split_factor);
    std::vector<Run> kept;
    for (int j = 0; j < factor; ++j) {
      const auto [begin, end] = part_of(SplitPolicy::chunk, extent, factor, j);
      const Run part = run_of(part_of(SplitPolicy::chunk, end - begin, degree_, coordinate));
      append_run(kept, {begin + part.global, part.length});
    }
    return kept;
  }

  void check(const Grouped& grouped) const {
    const std::int64_t extent = extent_of(grouped.dim);
    const auto& [groups, units] = grouped.interleave;
    std::int64_t rows = 0;
    try {
      slice_of(grouped.interleave, 0, 0);  // refuses what is no interleaving
      rows = groups * std::accumulate(units.begin(), units.end(), std::int64_t{0});
    } catch (const UnsupportedLayout& error) {
      refuse(error.what());
    }
    if (rows != extent) {
      refuse(fmt::format("{} groups of {} do not fill dimension {} of {} ({})", groups, fmt::join(units, "+"),
                         grouped.dim, shardcheck::to_string(shape_), degree_text()));
    }
    if (extent % degree_ != 0) refuse_extent(extent, grouped.dim, degree_text());
  }
  std::vector<Run> runs(const Grouped& grouped, int coordinate) const {
    const auto [begin, end] = part_of(SplitPolicy::even, extent_of(grouped.dim), degree_, coordinate);
    return slice_of(grouped.interleave, begin, end - begin);
  }

  void check(const ReplicatedGroups& groups) const {
    const std::int64_t extent = extent_of(groups.dim);
    if (groups.blocks < 1 || extent % groups.blocks != 0) {
      refuse_extent(extent, groups.dim, fmt::format("{} blocks ({})", groups.blocks, degree_text()));
    }
    if (degree_ % groups.blocks != 0) {
      refuse(fmt::format("{} is not divisible by its {} replicated blocks", degree_text(), groups.blocks));
    }
  }
  std::vector<Run> runs(const ReplicatedGroups& groups, int coordinate) const {
    const std::int64_t block = extent_of(groups.dim) / groups.blocks;
    std::vector<Run> kept;
    append_run(kept, {coordinate / (degree_ / groups.blocks) * block, block});
    return kept;
  }

  void check(const Segments& placement) const {
    const std::int64_t extent = extent_of(placement.dim);
    for (std::size_t i = 0; i < placement.segments.size(); ++i) check_segment(placement, i, extent);
    check_coverage(placement, extent);
  }
  std::vector<Run> runs(const Segments& placement, int coordinate) const {
    std::vector<Run> kept;
    for (const Segment& segment : placement.segments) {
      if (segment.items % degree_ == 0) {
        const std::int64_t length = segment.length() / degree_;
        append_run(kept, {segment.begin + coordinate * length, length});
      } else {
        const std::int64_t item = coordinate / (degree_ / segment.items);
        append_run(kept, {segment.begin + item * segment.unit, segment.unit});
      }
    }
    return kept;
  }

  void check_segment(const Segments& placement, std::size_t index, std::int64_t extent) const {
    const Segment& segment = placement.segments[index];
    const std::string label = segment.label.empty() ? fmt::format("segment {}", index) : segment.label;
    if (segment.items < 0 || segment.unit < 1 || segment.begin < 0) {
      refuse(fmt::format("{}: a segment needs begin >= 0, items >= 0 and unit >= 1, got {}, {}, {}", label,
                         segment.begin, segment.items, segment.unit));
    }
    std::int64_t length = 0;
    if (__builtin_mul_overflow(segment.items, segment.unit, &length) || length > extent ||
        segment.begin > extent - length) {
      refuse(fmt::format("{}: {} items of {} from {} leave dimension {} of extent {} in {}", label,
                         segment.items, segment.unit, segment.begin, placement.dim, extent,
                         shardcheck::to_string(shape_)));
    }
    const bool replicates = segment.replicates && segment.items > 0 && degree_ % segment.items == 0;
    if (segment.items % degree_ != 0 && !replicates) {
      refuse(fmt::format("{}={} is not divisible by {}{}", label, segment.items, degree_text(),
                         segment.replicates ? " nor the degree by it" : ""));
    }
  }

  void check_coverage(const Segments& placement, std::int64_t extent) const {
    std::vector<Run> ranges;
    for (const Segment& segment : placement.segments) {
      if (segment.items > 0) ranges.push_back({segment.begin, segment.length()});
    }
    std::sort(ranges.begin(), ranges.end(), [](const Run& a, const Run& b) { return a.global < b.global; });
    std::int64_t covered = 0;
    for (const Run& range : ranges) {
      if (range.global < covered) {
        refuse(fmt::format("segments overlap at index {} of dimension {}", range.global, placement.dim));
      }
      if (range.global > covered) break;
      covered += range.length;
    }
    if (covered != extent) {
      refuse(fmt::format("no segment covers index {} of dimension {} (extent {}, {})", covered, placement.dim,
                         extent, degree_text()));
    }
  }

  static Run run_of(std::pair<std::int64_t, std::int64_t> range) {
    return {range.first, range.second - range.first};
  }

  const std::string& name_;
  const Shape& shape_;
  Axis axis_;
  int degree_;
};

Mesh tensor_parallel_mesh(const std::string& name, int degree) {
  if (degree < 1) throw UnsupportedLayout(fmt::format("{}: TP degree {} is below 1", name, degree));
  if (degree > Mesh::kMaxDegree) {
    throw UnsupportedLayout(fmt::format("{}: TP degree {} is above {}", name, degree, Mesh::kMaxDegree));
  }
  return Mesh::tensor_parallel(degree);
}

/// Whether ranks along the axis hold different parts.
bool cuts(const Placement& placement) {
  return !std::holds_alternative<Replicate>(placement) && !std::holds_alternative<Partial>(placement);
}

void check_axes(const std::string& name, const std::vector<AxisPlacement>& placements, const Mesh& mesh) {
  std::vector<Axis> seen;
  for (const auto& [axis, placement] : placements) {
    if (std::find(seen.begin(), seen.end(), axis) != seen.end()) {
      throw UnsupportedLayout(fmt::format("{}: two placements for the axis {}", name, to_string(axis)));
    }
    seen.push_back(axis);
    const bool only_tp = mesh.size() == mesh.degree(Axis::tp);
    if (std::holds_alternative<Partial>(placement) &&
        (axis != Axis::tp || placements.size() > 1 || !only_tp)) {
      throw UnsupportedLayout(fmt::format(
          "{}: {} over the axis {}; allowed: over tp, as the only placement, on a mesh of tp alone", name,
          shardcheck::to_string(placement), to_string(axis)));
    }
  }
}

Shape cut_shape(Shape shape, const std::vector<Selection>& selections) {
  for (const Selection& selection : selections) {
    shape[static_cast<std::size_t>(selection.dim)] = selection.length();
  }
  return shape;
}

}  // namespace

std::int64_t Selection::length() const { return length_of(runs); }

PlacedTensor::PlacedTensor(const std::string& name, Shape shape, Placement placement, int degree)
    : PlacedTensor(name, std::move(shape), std::vector<AxisPlacement>{{Axis::tp, std::move(placement)}},
                   tensor_parallel_mesh(name, degree)) {}

PlacedTensor::PlacedTensor(std::string name, Shape shape, std::vector<AxisPlacement> placements,
                           const Mesh& mesh, Coordinates held)
    : name_(std::move(name)), held_(std::move(held)) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) {
    throw UnsupportedLayout(
        fmt::format("{}: shape {} has a negative extent", name_, shardcheck::to_string(shape)));
  }
  check_axes(name_, placements, mesh);
  Body body{std::move(shape), std::move(placements), mesh, {}};
  compute_selections(body);
  body_ = std::make_shared<const Body>(std::move(body));
  require_free_axes();
}

void PlacedTensor::require_free_axes() const {
  for (const auto& [axis, coordinate] : held_) {
    if (!cuts(placement(axis))) continue;
    throw UnsupportedLayout(
        fmt::format("{}: {} over the axis {}, which already decides which ranks hold it; "
                    "allowed: another axis",
                    name_, shardcheck::to_string(placement(axis)), to_string(axis)));
  }
}

PlacedTensor PlacedTensor::renamed(std::string name, Coordinates held) const {
  PlacedTensor other = *this;
  other.name_ = std::move(name);
  other.held_ = std::move(held);
  other.require_free_axes();
  return other;
}

void PlacedTensor::compute_selections(Body& body) const {
  body.selections = {{}};
  for (const auto& [axis, placement] : body.placements) {
    const int degree = body.mesh.degree(axis);
    std::int64_t total = 0;
    std::vector<std::vector<Selection>> finer;
    for (const std::vector<Selection>& before : body.selections) {
      const Shape local = cut_shape(body.shape, before);
      const Cut cut(name_, local, axis, degree);
      const int dim = cut.check(placement);
      for (int coordinate = 0; coordinate < (cuts(placement) ? degree : 1); ++coordinate) {
        finer.push_back(before);
        total += 1;
        for (const Selection& selection : before) total += std::ssize(selection.runs);
        if (dim < 0) continue;
        std::vector<Selection>& after = finer.back();
        std::vector<Run> runs = cut.runs(placement, coordinate);
        total += std::ssize(runs);
        if (total > kMaxRuns) {
          throw UnsupportedLayout(fmt::format("{}: {} over {} ranks lists more than {} runs", name_,
                                              shardcheck::to_string(placement), body.mesh.size(), kMaxRuns));
        }
        const auto at = std::find_if(after.begin(), after.end(),
                                     [dim](const Selection& selection) { return selection.dim >= dim; });
        if (at != after.end() && at->dim == dim) {
          at->runs = compose_runs(at->runs, runs);
        } else {
          after.insert(at, {dim, std::move(runs)});
        }
      }
    }
    body.selections = std::move(finer);
  }
}

const Placement& PlacedTensor::placement(Axis axis) const {
  static const Placement replicate = Replicate{};
  for (const auto& [placed_axis, placement] : placements()) {
    if (placed_axis == axis) return placement;
  }
  return replicate;
}

bool PlacedTensor::held_by(int rank) const {
  return std::all_of(held_.begin(), held_.end(), [&](const auto& coordinate) {
    return mesh().coordinate(rank, coordinate.first) == coordinate.second;
  });
}

bool PlacedTensor::is_replicated() const {
  return std::all_of(placements().begin(), placements().end(), [](const AxisPlacement& placement) {
    return std::holds_alternative<Replicate>(placement.placement);
  });
}

int PlacedTensor::class_of(int rank) const {
  int index = 0;
  for (const auto& [axis, placement] : placements()) {
    if (cuts(placement)) index = index * mesh().degree(axis) + mesh().coordinate(rank, axis);
  }
  return index;
}

const std::vector<Selection>& PlacedTensor::selections(int rank) const {
  if (rank < 0 || rank >= degree()) {
    throw std::out_of_range(fmt::format("{}: rank {} is not in [0, {})", name_, rank, degree()));
  }
  if (!held_by(rank)) throw std::logic_error(fmt::format("{}: rank {} does not hold it", name_, rank));
  return selections_of_class(class_of(rank));
}

Selection PlacedTensor::selection(int rank) const {
  const std::vector<Selection>& all = selections(rank);
  if (all.size() > 1) {
    throw std::logic_error(fmt::format("{}: rank {} holds a part of several dimensions", name_, rank));
  }
  return all.empty() ? Selection{} : all.front();
}

Shape PlacedTensor::local_shape(int rank) const { return cut_shape(shape(), selections(rank)); }

}  // namespace shardcheck
