// Plans: the list of box copies that turns a source layout into a target layout. Both sides are described
// in coordinates of logical tensors, so names, fusion order and placement compose without a full tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// A box of a logical tensor that lies at one place of one rank's file tensor. Boxes are [begin, begin+size)
/// per dimension; unused trailing dimensions have size 1.
struct Piece {
  static constexpr int kMaxRank = 4;
  std::int64_t logical = 0;  // index into logical_tensors(geometry)
  std::int64_t entry = 0;    // index into Layout::entries
  int rank = 0;
  int dims = 0;
  std::array<std::int64_t, kMaxRank> begin{};  // in the logical tensor
  std::array<std::int64_t, kMaxRank> size{};
  std::array<std::int64_t, kMaxRank> local{};  // origin in the rank's file tensor
};

/// Every piece of a layout: per rank, per entry, in local order. Replicas appear once per rank that holds
/// them.
std::vector<Piece> pieces(const Layout& layout);

/// One copy: a box from (source entry, rank, origin) to (target entry, rank, origin).
struct Copy {
  std::int64_t source_entry = 0, target_entry = 0;
  int source_rank = 0, target_rank = 0;
  int dims = 0;
  std::array<std::int64_t, Piece::kMaxRank> size{};
  std::array<std::int64_t, Piece::kMaxRank> source_origin{};
  std::array<std::int64_t, Piece::kMaxRank> target_origin{};
  std::int64_t elements() const;
};

struct Plan {
  std::vector<Copy> copies;         // sorted by target rank, target entry, target origin
  std::int64_t elements_moved = 0;  // sum over copies
};

/// Direct, total, deterministic: every element of every target rank is written exactly once. A replicated
/// source is read from the lowest rank congruent with the target rank, so reads spread. Partial placements
/// are refused with UnsupportedLayout (they need arithmetic, not copies). Throws InvalidLayout when the two
/// layouts are of different geometries.
Plan make_plan(const Layout& source, const Layout& target);

}  // namespace shardcheck
