// The entries of a layout in terms of logical tensors, dimension by dimension. What a rank holds is a product
// of runs over dimensions, and entries of one rule share it, so both are computed once. Private to the room.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "layout/logical_index.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/plan.h"

namespace shardcheck {

/// Coordinates by axis, -1 where the axis is free.
using FixedCoordinates = std::array<std::int16_t, kAxes>;
inline constexpr FixedCoordinates kAllFree = {-1, -1, -1, -1, -1, -1};
/// The second over the first; they never fix the same axis.
FixedCoordinates overlay(FixedCoordinates first, const FixedCoordinates& second);
FixedCoordinates fixed_of(const Coordinates& held);
bool matches(const Mesh& mesh, int rank, const FixedCoordinates& fixed);

/// A run of one dimension of a file tensor on a rank: [begin, begin + length) of what `item` says.
struct DimRun {
  std::int64_t item = 0;  // stack dimension: the stacked tensor; arrangement's dimension: the part; else 0
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t local = 0;
};

/// Consecutive logical indices and where ranks hold them.
struct Interval {
  struct Holder {
    FixedCoordinates at;
    std::int64_t local = 0;  // of the interval's begin
  };
  std::int64_t begin = 0, end = 0;
  std::vector<Holder> holders;
};

/// What the entries of one form hold.
class EntryView {
 public:
  /// Throws UnsupportedLayout for more than 4 dimensions, InvalidLayout when the parts do not fill the
  /// tensor.
  explicit EntryView(const LayoutEntry& entry);

  /// Throws InvalidLayout unless another entry's parts are like those of the first.
  void require_like(const LayoutEntry& entry) const;

  int dims() const { return dims_; }
  int logical_dim(int dim) const { return arrangement_.logical_dim(dim, dims_); }
  /// File dimension along a logical one.
  int file_dim(int logical_dim) const;
  bool has_stack() const { return arrangement_.stacked > 0; }
  std::int64_t parts() const { return std::ssize(extents_); }
  int part_dim() const { return arrangement_.dim; }
  float shift() const { return arrangement_.shift; }
  const PlacedTensor& placed() const { return placed_; }

  /// Runs of a dimension on the ranks of a class, in local order, padding left out.
  const std::vector<DimRun>& runs(int klass, int dim) const {
    return runs_[static_cast<std::size_t>(klass) * static_cast<std::size_t>(dims_) +
                 static_cast<std::size_t>(dim)];
  }
  /// All that any rank holds of a part along a dimension (of a stacked tensor along the stack), ascending and
  /// disjoint.
  std::vector<Interval> intervals(int dim, std::int64_t item) const;

 private:
  std::vector<DimRun> runs_of(const std::vector<Selection>& selections, int dim) const;

  Arrangement arrangement_;
  PlacedTensor placed_;
  int dims_ = 0;
  std::vector<std::int64_t> extents_;      // of the parts along the arrangement's dimension
  std::vector<std::vector<DimRun>> runs_;  // by class, then dimension
};

/// The views of a layout's entries, and where it holds each logical tensor.
class LayoutView {
 public:
  struct Place {
    std::int32_t entry = -1;
    std::int64_t stack_item = 0, part = 0;
  };

  LayoutView(const LogicalIndex& logical, const Layout& layout);

  const Layout& layout() const { return layout_; }
  const EntryView& view(std::size_t entry) const { return *views_[entry]; }
  /// Its entry, then tied copies.
  const std::vector<Place>& places(std::size_t logical) const { return places_[logical]; }
  /// Number of the part of an entry among the logical tensors.
  std::size_t logical(std::size_t entry, std::size_t part) const {
    return logical_[first_part_[entry] + part];
  }

 private:
  const Layout& layout_;
  std::vector<std::shared_ptr<const EntryView>> views_;
  std::vector<std::vector<Place>> places_;
  std::vector<std::size_t> logical_, first_part_;
};

}  // namespace shardcheck
