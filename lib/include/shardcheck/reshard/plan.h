// Plans: the list of box copies that turns a source layout into a target layout. Both sides are described
// in coordinates of logical tensors, so names, fusion order and placement compose without a full tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// A box of a logical tensor that lies at one place of one rank's file tensor. Everything is listed by
/// dimension of the file tensor; unused trailing dimensions have size 1.
struct Piece {
  static constexpr int kMaxRank = 4;
  std::int64_t logical = 0;  // index into logical_tensors(geometry)
  std::int64_t entry = 0;    // index into Layout::entries
  int rank = 0;
  int dims = 0;
  std::array<std::int8_t, kMaxRank> logical_dim{};  // of the logical tensor; -1: the stack of experts
  std::array<std::int64_t, kMaxRank> begin{};       // in the logical tensor, along logical_dim
  std::array<std::int64_t, kMaxRank> size{};
  std::array<std::int64_t, kMaxRank> local{};  // origin in the rank's file tensor
};

/// Every piece of a layout: per rank, per entry, in local order; padding is no piece. Replicas appear once
/// per rank that holds them. Throws UnsupportedLayout for a file tensor of more than 4 dimensions,
/// InvalidLayout when an entry's logical tensors are not those of the geometry or do not fill it.
std::vector<Piece> pieces(const Layout& layout);

/// One copy: a box from (source entry, rank, origin) to (target entry, rank, origin).
struct Copy {
  std::int32_t source_entry = 0, target_entry = 0;
  std::int32_t source_rank = 0, target_rank = 0;
  std::array<std::int64_t, Piece::kMaxRank> size{};  // by dimension of the target
  std::array<std::int64_t, Piece::kMaxRank> target_origin{};
  std::array<std::int64_t, Piece::kMaxRank> source_origin{};  // by dimension of the source
  /// Dimension of the source along which each dimension of the target runs, -1 for one the source lacks: the
  /// stack of experts, of size 1 then.
  std::array<std::int8_t, Piece::kMaxRank> source_dim{};
  std::int8_t dims = 0;  // of the target
  float shift = 0;       // added to every value (zero-centred norms); 0: the bytes are copied

  std::int64_t elements() const;
};

struct Plan {
  std::vector<Copy> copies;         // sorted by target rank, target entry, target origin
  std::int64_t elements_moved = 0;  // written in all, padding apart
  std::int64_t elements_local = 0;  // of them from the process that writes them
};

/// Which process each target rank runs in; source rank r runs in process r. Empty: target rank r too.
using RankMap = std::vector<int>;

/// Copies that a plan may have: 4 GiB of them.
inline constexpr std::int64_t kMaxCopies = std::int64_t{1} << 25;

/// Direct, total, deterministic: every element of every target rank is written exactly once, from the same
/// process where it holds the element, else from one of the ranks that do, spread by target rank. Every copy
/// is a maximal box. A tied tensor is read from the copy that the process holds, if any. Partial placements
/// are refused with UnsupportedLayout (they need arithmetic, not copies). Throws InvalidLayout when the two
/// layouts are of different geometries, std::invalid_argument for a map of another length or with a process
/// twice, UnsupportedLayout for more than kMaxCopies copies.
Plan make_plan(const Layout& source, const Layout& target, const RankMap& map = {});

/// Elements that the target ranks hold in all, padding apart, and how many of them their process already
/// holds in the source: no plan can move fewer than the difference. Derived from the layouts alone. Throws
/// as `make_plan`.
struct PlanBound {
  std::int64_t elements = 0;
  std::int64_t held_already = 0;
};
PlanBound plan_bound(const Layout& source, const Layout& target, const RankMap& map = {});

/// The rank map that leaves most elements where they are: an optimal assignment of target ranks to processes,
/// in time cubic in the number of ranks; processes are as many as the larger side has ranks.
/// Deterministic. Throws as `make_plan`, and InvalidInput for more than 1024 ranks.
RankMap best_rank_map(const Layout& source, const Layout& target);

}  // namespace shardcheck
