#include "origin_lines.h"

#include <algorithm>
#include <cstdlib>

#include "tensor/at.h"

namespace shardcheck {
namespace {

const Selection* selection_along(const LayoutEntry& entry, int rank, std::size_t dim) {
  const auto& selections = entry.placed.selections(rank);
  const auto found = std::ranges::find(selections, static_cast<int>(dim), &Selection::dim);
  return found == selections.end() ? nullptr : &*found;
}

/// First index that a rank holds along a dimension it holds one range of; nullopt for several.
std::optional<std::int64_t> only_begin(const LayoutEntry& entry, int rank, std::size_t dim) {
  const Selection* held = selection_along(entry, rank, dim);
  if (held == nullptr) return 0;
  if (held->runs.size() != 1 || held->runs.front().global == kPadding) return std::nullopt;
  return held->runs.front().global;
}

/// Whether the box runs through all of the shard along a dimension that is not the line's, as it does in its
/// tensor.
bool spans(const OriginBox& box, std::size_t dim, std::int64_t extent, std::optional<std::int64_t> begin) {
  if (box.local[dim] != 0 || box.size[dim] != extent) return false;
  if (box.kind != OriginBox::Kind::element) return true;
  const bool in_place = box.size[dim] == 1 || box.step[dim] == static_cast<int>(dim) + 1;
  return in_place && begin && box.origin[dim] == *begin;
}

void append_line_run(LineRuns& runs, const LineRun& run) {
  if (!runs.empty() && runs.back().kind == run.kind && run.kind != OriginBox::Kind::element) {
    runs.back().length += run.length;
  } else if (run.length > 0) {
    runs.push_back(run);
  }
}

}  // namespace

std::size_t line_dim(const LayoutEntry& entry, int rank) {
  const auto& selections = entry.placed.selections(rank);
  return selections.empty() ? 0 : at(selections.front().dim);
}

LineRuns expected_lines(const Layout& layout, std::int64_t entry, int rank, std::size_t dim) {
  const LayoutEntry& own = layout.entries[at(entry)];
  const Selection* held = selection_along(own, rank, dim);
  if (held == nullptr) {
    const Shape& shape = own.placed.shape();
    return {{OriginBox::Kind::element, entry, 0, shape.empty() ? 1 : shape[dim], false}};
  }
  LineRuns runs;
  for (const Run& run : held->runs) {
    const bool padding = run.global == kPadding;
    append_line_run(runs, {padding ? OriginBox::Kind::zero : OriginBox::Kind::element, padding ? -1 : entry,
                           padding ? 0 : run.global, run.length, false});
  }
  return runs;
}

std::optional<LineRuns> lines_along(const Layout& layout, std::int64_t entry, int rank, std::size_t dim,
                                    const DecodedShard& held) {
  if (held.boxes_left_out > 0) return std::nullopt;
  const LayoutEntry& own = layout.entries[at(entry)];
  const Shape shape = own.placed.local_shape(rank);
  LineRuns runs;
  for (const OriginBox& box : held.boxes) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d != dim && !spans(box, d, shape[d], only_begin(own, rank, d))) return std::nullopt;
    }
    const int step = box.step[dim];
    if (box.kind == OriginBox::Kind::element && step != 0 && std::abs(step) != static_cast<int>(dim) + 1) {
      return std::nullopt;
    }
    append_line_run(runs, {box.kind, box.entry, box.kind == OriginBox::Kind::element ? box.origin[dim] : 0,
                           box.size[dim], step < 0});
  }
  return runs;
}

std::string_view line_word(const LayoutEntry& entry, std::size_t dim) {
  const std::size_t dims = entry.placed.shape().size();
  if (dims < 2) return "elements";
  return dim + 1 == dims ? "columns" : dim + 2 == dims ? "rows" : "slices";
}

}  // namespace shardcheck
