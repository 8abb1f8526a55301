#include "shardcheck/reshard/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "layout/logical_index.h"

namespace shardcheck {
namespace {

std::size_t index_of(const LogicalIndex& logical, const LayoutEntry& entry, const LogicalTensor& part) {
  const auto found = logical.find(part.name);
  if (!found) {
    throw InvalidLayout(fmt::format("{}: the geometry has no logical tensor '{}'", entry.name, part.name));
  }
  return *found;
}

/// Dimension along which an entry is cut; 0 when it is held whole.
std::size_t cut_dim(const Selection& selection) {
  return selection.dim < 0 ? 0 : static_cast<std::size_t>(selection.dim);
}

/// Lists the pieces of one entry on one rank.
class EntryPieces {
 public:
  EntryPieces(const LogicalIndex& logical, const Layout& layout, std::size_t entry, int rank)
      : entry_(layout.entries[entry]), selection_(entry_.placed.selection(rank)) {
    const Shape& shape = entry_.placed.shape();
    if (shape.size() > Piece::kMaxRank) {
      throw UnsupportedLayout(fmt::format("{}: a plan handles at most {} dimensions, got {}", entry_.name,
                                          Piece::kMaxRank, to_string(shape)));
    }
    blank_.entry = static_cast<std::int64_t>(entry);
    blank_.rank = rank;
    blank_.dims = static_cast<int>(shape.size());
    blank_.size.fill(1);
    std::copy(shape.begin(), shape.end(), blank_.size.begin());
    if (selection_.dim < 0) selection_.runs = {{0, blank_.size[0]}};
    for (const LogicalTensor& part : entry_.parts) {
      blank_.logical = static_cast<std::int64_t>(index_of(logical, entry_, part));
      add_part(part.shape.empty() ? 1 : part.shape.front());
    }
    if (first_row_ != (shape.empty() ? 1 : shape.front())) {
      throw InvalidLayout(fmt::format("{}: its logical tensors stack to {} rows, its shape is {}",
                                      entry_.name, first_row_, to_string(shape)));
    }
  }

  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  /// Pieces of the part that is stacked at rows [first_row_, first_row_ + rows) of the file tensor.
  void add_part(std::int64_t rows) {
    blank_.size[0] = rows;
    blank_.local[0] = first_row_;
    std::int64_t local = 0;
    for (const Run& run : selection_.runs) {
      if (cut_dim(selection_) == 0) {
        const std::int64_t begin = std::max(run.global, first_row_);
        const std::int64_t end = std::min(run.global + run.length, first_row_ + rows);
        add_piece(0, begin - first_row_, end - begin, local + begin - run.global);
      } else {
        add_piece(cut_dim(selection_), run.global, run.length, local);
      }
      local += run.length;
    }
    first_row_ += rows;
  }

  void add_piece(std::size_t dim, std::int64_t begin, std::int64_t length, std::int64_t local) {
    Piece piece = blank_;
    piece.begin[dim] = begin;
    piece.size[dim] = length;
    piece.local[dim] = local;
    if (*std::min_element(piece.size.begin(), piece.size.end()) > 0) pieces_.push_back(piece);
  }

  const LayoutEntry& entry_;
  Selection selection_;
  Piece blank_;
  std::int64_t first_row_ = 0;
  std::vector<Piece> pieces_;
};

/// Throws InvalidLayout unless every logical tensor has exactly one entry.
void require_complete(const LogicalIndex& logical, const Layout& layout) {
  std::vector<int> entries(logical.size(), 0);
  for (const LayoutEntry& entry : layout.entries) {
    for (const LogicalTensor& part : entry.parts) ++entries[index_of(logical, entry, part)];
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] != 1) {
      throw InvalidLayout(fmt::format("layout {} holds the tensor '{}' {} times, expected once",
                                      to_string(layout.name), logical[i].name, entries[i]));
    }
  }
}

/// The source's pieces by logical tensor, sorted along the dimension they are cut in, every element once.
class SourceIndex {
 public:
  SourceIndex(const LogicalIndex& logical, const Layout& source) : holdings_(logical.size()) {
    for (std::size_t entry = 0; entry < source.entries.size(); ++entry) add(logical, source, entry);
    for (Holding& held : holdings_) {
      std::sort(held.pieces.begin(), held.pieces.end(),
                [dim = held.dim](const Piece& a, const Piece& b) { return a.begin[dim] < b.begin[dim]; });
    }
  }

  /// Calls `visit` for every source piece that overlaps a target piece, ascending.
  template <typename Visit>
  void overlaps(const Piece& target, Visit visit) const {
    const Holding& held = holdings_[static_cast<std::size_t>(target.logical)];
    const std::size_t dim = held.dim;
    const std::int64_t end = target.begin[dim] + target.size[dim];
    auto piece = std::partition_point(held.pieces.begin(), held.pieces.end(), [&](const Piece& p) {
      return p.begin[dim] + p.size[dim] <= target.begin[dim];
    });
    for (; piece != held.pieces.end() && piece->begin[dim] < end; ++piece) {
      Piece found = *piece;
      // Replicas are equal, so target ranks spread their reads over them.
      if (held.replicas > 0) found.rank = target.rank % held.replicas;
      visit(found);
    }
  }

 private:
  struct Holding {
    std::vector<Piece> pieces;
    std::size_t dim = 0;
    int replicas = 0;  // ranks that hold the tensor whole; 0 when it is cut
  };

  void add(const LogicalIndex& logical, const Layout& source, std::size_t index) {
    const LayoutEntry& entry = source.entries[index];
    const int degree = entry.placed.degree();
    const bool replicated = std::holds_alternative<Replicate>(entry.placed.placement());
    for (const LogicalTensor& part : entry.parts) {
      holdings_[index_of(logical, entry, part)] = {
          {}, cut_dim(entry.placed.selection(0)), replicated ? degree : 0};
    }
    for (int rank = 0; rank < (replicated ? 1 : degree); ++rank) {
      for (const Piece& piece : EntryPieces(logical, source, index, rank).take()) {
        holdings_[static_cast<std::size_t>(piece.logical)].pieces.push_back(piece);
      }
    }
  }

  std::vector<Holding> holdings_;
};

/// The part of a target piece that a source piece holds.
Copy overlap_copy(const Piece& source, const Piece& target) {
  Copy copy;
  copy.source_entry = source.entry;
  copy.target_entry = target.entry;
  copy.source_rank = source.rank;
  copy.target_rank = target.rank;
  copy.dims = target.dims;
  for (std::size_t d = 0; d < Piece::kMaxRank; ++d) {
    const std::int64_t begin = std::max(source.begin[d], target.begin[d]);
    const std::int64_t end = std::min(source.begin[d] + source.size[d], target.begin[d] + target.size[d]);
    copy.size[d] = end - begin;
    copy.source_origin[d] = source.local[d] + begin - source.begin[d];
    copy.target_origin[d] = target.local[d] + begin - target.begin[d];
  }
  return copy;
}

/// Extends `first` by `second` when the two are one box on both sides.
bool merge(Copy& first, const Copy& second) {
  if (first.source_entry != second.source_entry || first.source_rank != second.source_rank ||
      first.target_entry != second.target_entry || first.target_rank != second.target_rank) {
    return false;
  }
  int joined = -1;
  for (std::size_t d = 0; d < Piece::kMaxRank; ++d) {
    const bool same = first.size[d] == second.size[d] && first.source_origin[d] == second.source_origin[d] &&
                      first.target_origin[d] == second.target_origin[d];
    if (same) continue;
    const bool adjacent = first.source_origin[d] + first.size[d] == second.source_origin[d] &&
                          first.target_origin[d] + first.size[d] == second.target_origin[d];
    if (!adjacent || joined >= 0) return false;
    joined = static_cast<int>(d);
  }
  if (joined < 0) return false;
  first.size[static_cast<std::size_t>(joined)] += second.size[static_cast<std::size_t>(joined)];
  return true;
}

/// Appends the copies into one entry of one rank, sorted and grown into maximal boxes.
void append_merged(std::vector<Copy>& all, std::vector<Copy> copies) {
  std::sort(copies.begin(), copies.end(),
            [](const Copy& a, const Copy& b) { return a.target_origin < b.target_origin; });
  for (const Copy& copy : copies) {
    all.push_back(copy);
    while (all.size() > 1 && merge(all[all.size() - 2], all.back())) all.pop_back();
  }
}

void refuse_partial(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (std::holds_alternative<Partial>(entry.placed.placement())) {
      throw UnsupportedLayout(fmt::format("{}: {} at TP degree {} needs arithmetic, a plan only copies",
                                          entry.name, to_string(entry.placed.placement()),
                                          entry.placed.degree()));
    }
  }
}

}  // namespace

std::int64_t Copy::elements() const {
  std::int64_t product = 1;
  for (int d = 0; d < dims; ++d) product *= size[static_cast<std::size_t>(d)];
  return product;
}

std::vector<Piece> pieces(const Layout& layout) {
  const LogicalIndex logical(layout.geometry);
  std::vector<Piece> all;
  for (int rank = 0; rank < layout.degree; ++rank) {
    for (std::size_t entry = 0; entry < layout.entries.size(); ++entry) {
      const std::vector<Piece> some = EntryPieces(logical, layout, entry, rank).take();
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

Plan make_plan(const Layout& source, const Layout& target) {
  if (source.geometry != target.geometry) {
    throw InvalidLayout(fmt::format("source and target layouts are of different geometries: {} and {}",
                                    to_string(source.geometry), to_string(target.geometry)));
  }
  refuse_partial(source);
  refuse_partial(target);
  const LogicalIndex logical(source.geometry);
  require_complete(logical, source);
  require_complete(logical, target);
  const SourceIndex index(logical, source);
  Plan plan;
  for (int rank = 0; rank < target.degree; ++rank) {
    for (std::size_t entry = 0; entry < target.entries.size(); ++entry) {
      std::vector<Copy> copies;
      for (const Piece& piece : EntryPieces(logical, target, entry, rank).take()) {
        index.overlaps(piece, [&](const Piece& held) { copies.push_back(overlap_copy(held, piece)); });
      }
      append_merged(plan.copies, std::move(copies));
    }
  }
  for (const Copy& copy : plan.copies) plan.elements_moved += copy.elements();
  return plan;
}

}  // namespace shardcheck
