// Boxes of a shard as lines along one dimension: rows, columns. Private to the room.
#pragma once

#include <optional>
#include <vector>

#include "shardcheck/reshard/decode.h"

namespace shardcheck {

/// Consecutive lines of a shard with one kind of origin.
struct LineRun {
  OriginBox::Kind kind = OriginBox::Kind::element;
  std::int64_t entry = -1;
  std::int64_t begin = 0;  // first line in the file tensor of `entry`
  std::int64_t length = 0;
  bool falling = false;  // begin, begin - 1, ...

  std::int64_t lowest() const { return falling ? begin - length + 1 : begin; }
  bool operator==(const LineRun&) const = default;
};
using LineRuns = std::vector<LineRun>;

/// The dimension that ranks cut, the first where there are several, 0 where there is none.
std::size_t line_dim(const LayoutEntry& entry, int rank);

/// What the rank should hold along `dim`; padding is `zero`.
LineRuns expected_lines(const Layout& layout, std::int64_t entry, int rank, std::size_t dim);

/// What it holds; nullopt where a box is left out, or is no whole lines along `dim` in the place they have in
/// their tensor.
std::optional<LineRuns> lines_along(const Layout& layout, std::int64_t entry, int rank, std::size_t dim,
                                    const DecodedShard& held);

/// "rows", "columns", "slices"; "elements" of a vector.
std::string_view line_word(const LayoutEntry& entry, std::size_t dim);

}  // namespace shardcheck
