#include "entry_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tensor/at.h"

namespace shardcheck {
namespace {

bool cuts_dim(const Placement& placement, int dim) {
  return std::visit(
      [dim](const auto& one) {
        if constexpr (requires { one.dim; }) {
          return one.dim == dim;
        } else {
          return false;
        }
      },
      placement);
}

/// Every combination of coordinates of the axes that cut a dimension.
std::vector<FixedCoordinates> coordinates_of(const PlacedTensor& placed, int dim) {
  std::vector<FixedCoordinates> all = {kAllFree};
  for (const auto& [axis, placement] : placed.placements()) {
    if (!cuts_dim(placement, dim)) continue;
    std::vector<FixedCoordinates> finer;
    for (const FixedCoordinates& before : all) {
      for (int c = 0; c < placed.mesh().degree(axis); ++c) {
        finer.push_back(before);
        finer.back()[static_cast<std::size_t>(axis)] = static_cast<std::int16_t>(c);
      }
    }
    all = std::move(finer);
  }
  return all;
}

/// The lowest rank at the coordinates.
int rank_at(const Mesh& mesh, const FixedCoordinates& fixed) {
  int rank = 0;
  for (const auto& [axis, degree] : mesh.axes()) {
    rank += std::max<int>(0, fixed[static_cast<std::size_t>(axis)]) * mesh.stride(axis);
  }
  return rank;
}

}  // namespace

FixedCoordinates overlay(FixedCoordinates first, const FixedCoordinates& second) {
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (second[a] >= 0) first[a] = second[a];
  }
  return first;
}

FixedCoordinates fixed_of(const Coordinates& held) {
  FixedCoordinates fixed = kAllFree;
  for (const auto& [axis, coordinate] : held) {
    fixed[static_cast<std::size_t>(axis)] = static_cast<std::int16_t>(coordinate);
  }
  return fixed;
}

bool matches(const Mesh& mesh, int rank, const FixedCoordinates& fixed) {
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (fixed[a] >= 0 && mesh.coordinate(rank, static_cast<Axis>(a)) != fixed[a]) return false;
  }
  return true;
}

EntryView::EntryView(const LayoutEntry& entry)
    : arrangement_(entry.arrangement()),
      placed_(entry.placed),
      extents_(part_extents(arrangement_, entry.parts)) {
  const Shape& shape = placed_.shape();
  if (shape.size() > Piece::kMaxRank) {
    throw UnsupportedLayout(fmt::format("{}: a plan handles at most {} dimensions, got {}", entry.name,
                                        Piece::kMaxRank, to_string(shape)));
  }
  require_like(entry);
  dims_ = static_cast<int>(shape.size());
  for (int klass = 0; klass < placed_.classes(); ++klass) {
    for (int dim = 0; dim < dims_; ++dim) runs_.push_back(runs_of(placed_.selections_of_class(klass), dim));
  }
}

void EntryView::require_like(const LayoutEntry& entry) const {
  const Shape filled = file_shape(arrangement_, entry.parts);
  if (filled == placed_.shape() && part_extents(arrangement_, entry.parts) == extents_) return;
  throw InvalidLayout(fmt::format("{}: its logical tensors make the shape {}, the tensor has {}", entry.name,
                                  to_string(filled), to_string(placed_.shape())));
}

int EntryView::file_dim(int logical_dim) const {
  for (int dim = 0; dim < dims_; ++dim) {
    if (this->logical_dim(dim) == logical_dim) return dim;
  }
  return -1;
}

std::vector<DimRun> EntryView::runs_of(const std::vector<Selection>& selections, int dim) const {
  const auto cut = std::find_if(selections.begin(), selections.end(),
                                [dim](const Selection& selection) { return selection.dim == dim; });
  const std::vector<Run> whole = {{0, placed_.shape()[at(dim)]}};
  const std::vector<Run>& held = cut == selections.end() ? whole : cut->runs;
  std::vector<DimRun> runs;
  if (dim == arrangement_.dim) {
    for (const PartRun& run : part_runs(arrangement_, extents_, held)) {
      if (run.part != kPadding) runs.push_back({run.part, run.begin, run.length, run.position});
    }
    return runs;
  }
  std::int64_t local = 0;
  for (const Run& run : held) {
    if (run.global != kPadding && run.length > 0) {
      if (has_stack() && dim == 0) {
        for (std::int64_t i = 0; i < run.length; ++i) runs.push_back({run.global + i, 0, 1, local + i});
      } else {
        runs.push_back({0, run.global, run.length, local});
      }
    }
    local += run.length;
  }
  return runs;
}

std::vector<Interval> EntryView::intervals(int dim, std::int64_t item) const {
  struct Held {
    DimRun run;
    FixedCoordinates where;
  };
  std::vector<Held> all;
  std::vector<std::int64_t> bounds;
  for (const FixedCoordinates& where : coordinates_of(placed_, dim)) {
    for (const DimRun& run : runs(placed_.class_of(rank_at(placed_.mesh(), where)), dim)) {
      if (run.item != item) continue;
      all.push_back({run, where});
      bounds.push_back(run.begin);
      bounds.push_back(run.begin + run.length);
    }
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::vector<Interval> intervals;
  for (std::size_t i = 1; i < bounds.size(); ++i) intervals.push_back({bounds[i - 1], bounds[i], {}});
  for (const auto& [run, where] : all) {
    auto bound = std::lower_bound(bounds.begin(), bounds.end(), run.begin);
    for (; *bound < run.begin + run.length; ++bound) {
      Interval& interval = intervals[at(bound - bounds.begin())];
      interval.holders.push_back({where, run.local + interval.begin - run.begin});
    }
  }
  std::erase_if(intervals, [](const Interval& interval) { return interval.holders.empty(); });
  return intervals;
}

LayoutView::LayoutView(const LogicalIndex& logical, const Layout& layout)
    : layout_(layout), places_(logical.size()) {
  std::map<std::pair<const void*, const void*>, std::shared_ptr<const EntryView>> known;
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    const LayoutEntry& entry = layout.entries[e];
    auto& view = known[{entry.placed.identity(), entry.arranged.get()}];
    if (view) {
      view->require_like(entry);
    } else {
      view = std::make_shared<const EntryView>(entry);
    }
    views_.push_back(view);
    first_part_.push_back(logical_.size());
    for (std::size_t p = 0; p < entry.parts.size(); ++p) {
      const auto number = logical.find(entry.parts[p].name);
      if (!number) {
        throw InvalidLayout(
            fmt::format("{}: the geometry has no logical tensor '{}'", entry.name, entry.parts[p].name));
      }
      logical_.push_back(*number);
      std::vector<Place>& places = places_[*number];
      const auto part = static_cast<std::int64_t>(p);
      const Place place{static_cast<std::int32_t>(e), part / view->parts(), part % view->parts()};
      if (entry.tied) {
        places.push_back(place);
      } else if (!places.empty() && !layout.entries[at(places.front().entry)].tied) {
        throw InvalidLayout(fmt::format("layout {} holds the tensor '{}' in '{}' and '{}', expected once",
                                        to_string(layout.name), entry.parts[p].name,
                                        layout.entries[at(places.front().entry)].name, entry.name));
      } else {
        places.insert(places.begin(), place);
      }
    }
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].empty() || layout.entries[at(places_[i].front().entry)].tied) {
      throw InvalidLayout(fmt::format("layout {} holds the tensor '{}' 0 times, expected once",
                                      to_string(layout.name), logical[i].name));
    }
  }
}

}  // namespace shardcheck
