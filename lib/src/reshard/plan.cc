#include "shardcheck/reshard/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "match.h"

namespace shardcheck {
namespace {

constexpr std::size_t kDims = Piece::kMaxRank;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Which process each target rank runs in, checked.
class Processes {
 public:
  Processes(const Layout& target, const RankMap& map) : map_(map) {
    if (map.empty()) return;
    RankMap sorted = map;
    std::sort(sorted.begin(), sorted.end());
    const bool unique = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (std::ssize(map) != target.degree || !unique || sorted.front() < 0) {
      throw std::invalid_argument(fmt::format(
          "rank map of {} processes for {} target ranks: every target rank needs a process of its own",
          map.size(), target.degree));
    }
  }
  int of(int target_rank) const { return map_.empty() ? target_rank : map_[at(target_rank)]; }

 private:
  const RankMap& map_;
};

/// The holder that the wanting process is, else one of them by the process's number.
const Interval::Holder& pick(const std::vector<Interval::Holder>& holders, const Mesh& mesh, int process) {
  if (holders.size() == 1) return holders.front();
  if (process < mesh.size()) {
    for (const Interval::Holder& holder : holders) {
      if (matches(mesh, process, holder.at)) return holder;
    }
  }
  return holders[at(process) % holders.size()];
}

/// A rank at the coordinates: the process itself where it is one, else spread over the free axes.
int rank_for(const Mesh& mesh, const FixedCoordinates& fixed, int process) {
  if (process < mesh.size() && matches(mesh, process, fixed)) return process;
  int rank = 0, spread = process;
  for (auto axis = mesh.axes().rbegin(); axis != mesh.axes().rend(); ++axis) {
    const auto& [name, degree] = *axis;
    int coordinate = fixed[static_cast<std::size_t>(name)];
    if (coordinate < 0) {
      coordinate = spread % degree;
      spread /= degree;
    }
    rank += coordinate * mesh.stride(name);
  }
  return rank;
}

/// Extends `first` by `second` when the two are one box on both sides, joined along target dimension `along`.
bool merge(Copy& first, const Copy& second, std::size_t along) {
  if (first.source_entry != second.source_entry || first.source_rank != second.source_rank ||
      first.source_dim != second.source_dim || first.source_dim[along] < 0) {
    return false;
  }
  const std::size_t source_along = at(first.source_dim[along]);
  for (std::size_t d = 0; d < kDims; ++d) {
    const bool joined = d == along;
    if (!joined && first.size[d] != second.size[d]) return false;
    if (second.target_origin[d] != first.target_origin[d] + (joined ? first.size[d] : 0)) return false;
    const std::int64_t step = d == source_along ? first.size[along] : 0;
    if (second.source_origin[d] != first.source_origin[d] + step) return false;
  }
  first.size[along] += second.size[along];
  return true;
}

/// Joins the copies of a range along one dimension; returns the new end.
template <typename Iterator>
Iterator join_along(Iterator first, Iterator last, std::size_t along) {
  std::sort(first, last, [along](const Copy& a, const Copy& b) {
    for (std::size_t d = 0; d < kDims; ++d) {
      if (d != along && a.target_origin[d] != b.target_origin[d])
        return a.target_origin[d] < b.target_origin[d];
    }
    return a.target_origin[along] < b.target_origin[along];
  });
  Iterator kept = first;
  for (Iterator next = std::next(first); next != last; ++next) {
    if (!merge(*kept, *next, along)) *++kept = *next;
  }
  return std::next(kept);
}

/// Grows the copies from `begin` on, into one entry of one rank, into maximal boxes and sorts them.
void merge_tail(std::vector<Copy>& copies, std::size_t begin) {
  const auto first = copies.begin() + static_cast<std::ptrdiff_t>(begin);
  auto last = copies.end();
  // Joined along one dimension, boxes may fit along another: again until nothing changes.
  for (std::ptrdiff_t before = 0; std::distance(first, last) > 1 && std::distance(first, last) != before;) {
    before = std::distance(first, last);
    for (std::size_t d = at(first->dims); d-- > 0 && std::distance(first, last) > 1;) {
      last = join_along(first, last, d);
    }
  }
  copies.erase(last, copies.end());
  std::sort(first, copies.end(),
            [](const Copy& a, const Copy& b) { return a.target_origin < b.target_origin; });
}

void refuse_partial(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.placed.is_partial()) {
      throw UnsupportedLayout(fmt::format("{}: {} at TP degree {} needs arithmetic, a plan only copies",
                                          entry.name, to_string(entry.placed.placement()),
                                          entry.placed.degree()));
    }
  }
}

void require_same_geometry(const Layout& source, const Layout& target) {
  if (source.geometry == target.geometry) return;
  throw InvalidLayout(fmt::format("source and target layouts are of different geometries: {} and {}",
                                  to_string(source.geometry), to_string(target.geometry)));
}

/// The two layouts matched part by part.
struct Matched {
  Matched(const Layout& source_layout, const Layout& target_layout)
      : logical((require_same_geometry(source_layout, target_layout), source_layout.geometry)),
        source((refuse_partial(source_layout), logical), source_layout),
        target((refuse_partial(target_layout), logical), target_layout),
        match(source, target) {}

  LogicalIndex logical;
  LayoutView source, target;
  LayoutMatch match;
};

/// Entries that each rank holds, ascending.
std::vector<std::vector<std::int32_t>> entries_by_rank(const Layout& layout) {
  std::vector<std::vector<std::int32_t>> entries(at(layout.degree));
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    for (const int rank : layout.entries[e].placed.holders()) {
      entries[at(rank)].push_back(static_cast<std::int32_t>(e));
    }
  }
  return entries;
}

/// Lists the copies into one entry of one target rank.
class CopyLister {
 public:
  CopyLister(const Matched& matched, std::int32_t entry, int rank, int process, std::vector<Copy>& out)
      : source_(matched.source),
        wanted_(matched.target.view(at(entry))),
        process_(process),
        klass_(matched.target.layout().entries[at(entry)].placed.class_of(rank)),
        out_(out) {
    blank_.target_entry = entry;
    blank_.target_rank = rank;
    blank_.dims = static_cast<std::int8_t>(wanted_.dims());
    blank_.size.fill(1);
    const std::size_t begin = out.size();
    for (const MatchedPart& part : matched.match.parts(at(entry))) {
      add(part.nearest(source_.layout(), process));
    }
    if (out.size() - begin > 1) merge_tail(out, begin);
  }

 private:
  void add(const MatchedPart& part) {
    Copy copy = blank_;
    const std::int64_t item = stack_position(wanted_, klass_, part.target_item);
    if (item < 0) return;
    const EntryView& held = source_.view(at(part.source_entry));
    const Layout& layout = source_.layout();
    FixedCoordinates fixed = fixed_of(layout.entries[at(part.source_entry)].placed.held());
    copy.source_entry = part.source_entry;
    copy.shift = wanted_.shift() - held.shift();
    copy.source_dim.fill(-1);
    if (part.source_stack != nullptr) {
      const Interval::Holder& holder = pick(part.source_stack->front().holders, layout.mesh, process_);
      fixed = overlay(fixed, holder.at);
      copy.source_origin[0] = holder.local;
    }
    if (wanted_.has_stack()) {
      copy.target_origin[0] = item;
      if (held.has_stack()) copy.source_dim[0] = 0;
    }
    add_dim(part, held, wanted_.has_stack() ? 1 : 0, copy, fixed);
  }

  /// The product of overlaps over the dimensions from `dim` on.
  void add_dim(const MatchedPart& part, const EntryView& held, int dim, Copy& copy,
               const FixedCoordinates& fixed) {
    if (dim == wanted_.dims()) {
      copy.source_rank = rank_for(source_.layout().mesh, fixed, process_);
      out_.push_back(copy);
      return;
    }
    const std::size_t d = at(dim);
    const int source_dim = held.file_dim(wanted_.logical_dim(dim));
    copy.source_dim[d] = static_cast<std::int8_t>(source_dim);
    for (const Overlap& overlap : part.match->overlaps(klass_, dim)) {
      const Interval::Holder& holder = pick(overlap.interval->holders, source_.layout().mesh, process_);
      copy.size[d] = overlap.length;
      copy.target_origin[d] = overlap.target_local;
      copy.source_origin[at(source_dim)] = holder.local + overlap.offset;
      add_dim(part, held, dim + 1, copy, overlay(fixed, holder.at));
    }
  }

  const LayoutView& source_;
  const EntryView& wanted_;
  int process_;
  int klass_;
  std::vector<Copy>& out_;
  Copy blank_;
};

std::int64_t wanted_length(const std::vector<Overlap>& overlaps) {
  return std::accumulate(overlaps.begin(), overlaps.end(), std::int64_t{0},
                         [](std::int64_t sum, const Overlap& overlap) { return sum + overlap.length; });
}

/// Counts what ranks want and what a process holds of it.
class Counter {
 public:
  explicit Counter(const Matched& matched) : matched_(matched) {}

  /// Elements of one part that a target rank of a class wants.
  std::int64_t wanted(std::size_t entry, const MatchedPart& part, int klass) const {
    const EntryView& view = matched_.target.view(entry);
    if (stack_position(view, klass, part.target_item) < 0) return 0;
    std::int64_t elements = 1;
    for (int dim = view.has_stack() ? 1 : 0; dim < view.dims(); ++dim) {
      elements *= wanted_length(part.match->overlaps(klass, dim));
    }
    return elements;
  }

  /// Of them, those that source rank `process` holds.
  std::int64_t held(std::size_t entry, const MatchedPart& any_part, int klass, int process) const {
    const Layout& source = matched_.source.layout();
    const MatchedPart& part = any_part.nearest(source, process);
    const EntryView& view = matched_.target.view(entry);
    if (process >= source.degree || !source.entries[at(part.source_entry)].placed.held_by(process) ||
        stack_position(view, klass, part.target_item) < 0 ||
        (part.source_stack != nullptr && !holds(part.source_stack->front(), process))) {
      return 0;
    }
    std::int64_t elements = 1;
    for (int dim = view.has_stack() ? 1 : 0; dim < view.dims(); ++dim) {
      std::int64_t length = 0;
      for (const Overlap& overlap : part.match->overlaps(klass, dim)) {
        if (holds(*overlap.interval, process)) length += overlap.length;
      }
      elements *= length;
    }
    return elements;
  }

 private:
  bool holds(const Interval& interval, int process) const {
    return std::any_of(interval.holders.begin(), interval.holders.end(), [&](const auto& holder) {
      return matches(matched_.source.layout().mesh, process, holder.at);
    });
  }

  const Matched& matched_;
};

/// Shortest augmenting paths over a square cost matrix (Jonker and Volgenant 1987): the column of each row.
std::vector<int> assign(const std::vector<std::int64_t>& cost, int n) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> row_price(at(n) + 1, 0), column_price(at(n) + 1, 0);
  std::vector<int> row_of(at(n) + 1, 0), previous(at(n) + 1, 0);
  for (int row = 1; row <= n; ++row) {
    std::vector<std::int64_t> distance(at(n) + 1, kFar);
    std::vector<bool> done(at(n) + 1, false);
    int column = 0;
    row_of[0] = row;
    do {
      done[at(column)] = true;
      const int here = row_of[at(column)];
      std::int64_t step = kFar;
      int next = 0;
      for (int c = 1; c <= n; ++c) {
        if (done[at(c)]) continue;
        const std::int64_t reduced =
            cost[at(here - 1) * at(n) + at(c - 1)] - row_price[at(here)] - column_price[at(c)];
        if (reduced < distance[at(c)]) {
          distance[at(c)] = reduced;
          previous[at(c)] = column;
        }
        if (distance[at(c)] < step) {
          step = distance[at(c)];
          next = c;
        }
      }
      for (int c = 0; c <= n; ++c) {
        if (done[at(c)]) {
          row_price[at(row_of[at(c)])] += step;
          column_price[at(c)] -= step;
        } else if (distance[at(c)] != kFar) {
          distance[at(c)] -= step;
        }
      }
      column = next;
    } while (row_of[at(column)] != 0);
    for (; column != 0; column = previous[at(column)]) row_of[at(column)] = row_of[at(previous[at(column)])];
  }
  std::vector<int> columns(at(n));
  for (int c = 1; c <= n; ++c) columns[at(row_of[at(c)] - 1)] = c - 1;
  return columns;
}

}  // namespace

std::int64_t Copy::elements() const {
  std::int64_t product = 1;
  for (int d = 0; d < dims; ++d) product *= size[at(d)];
  return product;
}

std::vector<Piece> pieces(const Layout& layout) {
  const Layout logical = logical_layout(layout.geometry);
  Layout copied = layout;
  // An addend lies where the whole would: pieces say where, not what.
  for (LayoutEntry& entry : copied.entries) {
    if (entry.placed.is_partial()) {
      entry.placed = PlacedTensor(entry.name, entry.placed.shape(), {}, layout.mesh, entry.placed.held());
    }
  }
  std::vector<Piece> all;
  for (const Copy& copy : make_plan(logical, copied).copies) {
    Piece piece;
    piece.logical = copy.source_entry;
    piece.entry = copy.target_entry;
    piece.rank = copy.target_rank;
    piece.dims = copy.dims;
    piece.logical_dim = copy.source_dim;
    piece.size = copy.size;
    piece.local = copy.target_origin;
    for (std::size_t d = 0; d < kDims; ++d) {
      piece.begin[d] = copy.source_dim[d] < 0 ? 0 : copy.source_origin[at(copy.source_dim[d])];
    }
    all.push_back(piece);
  }
  return all;
}

Plan make_plan(const Layout& source, const Layout& target, const RankMap& map) {
  const Matched matched(source, target);
  const Processes processes(target, map);
  Plan plan;
  const auto entries = entries_by_rank(target);
  for (int rank = 0; rank < target.degree; ++rank) {
    for (const std::int32_t entry : entries[at(rank)]) {
      CopyLister(matched, entry, rank, processes.of(rank), plan.copies);
    }
  }
  for (const Copy& copy : plan.copies) {
    plan.elements_moved += copy.elements();
    if (copy.source_rank == processes.of(copy.target_rank)) plan.elements_local += copy.elements();
  }
  return plan;
}

PlanBound plan_bound(const Layout& source, const Layout& target, const RankMap& map) {
  const Matched matched(source, target);
  const Processes processes(target, map);
  const Counter count(matched);
  PlanBound bound;
  for (std::size_t e = 0; e < target.entries.size(); ++e) {
    const PlacedTensor& placed = target.entries[e].placed;
    for (const int rank : placed.holders()) {
      const int klass = placed.class_of(rank);
      for (const MatchedPart& part : matched.match.parts(e)) {
        bound.elements += count.wanted(e, part, klass);
        bound.held_already += count.held(e, part, klass, processes.of(rank));
      }
    }
  }
  return bound;
}

RankMap best_rank_map(const Layout& source, const Layout& target) {
  constexpr int kMaxProcesses = 1024;
  const int processes = std::max(source.degree, target.degree);
  if (processes > kMaxProcesses) {
    throw InvalidInput(
        fmt::format("an optimal rank map of {} processes; allowed: at most {}", processes, kMaxProcesses));
  }
  const Matched matched(source, target);
  const Counter count(matched);
  std::vector<std::int64_t> cost(at(processes) * at(processes), 0);  // target rank x process, negative
  for (std::size_t e = 0; e < target.entries.size(); ++e) {
    const PlacedTensor& placed = target.entries[e].placed;
    for (const int rank : placed.holders()) {
      const int klass = placed.class_of(rank);
      for (const MatchedPart& part : matched.match.parts(e)) {
        const auto count_holders = [&](const MatchedPart& place) {
          for (const int process : source.entries[at(place.source_entry)].placed.holders()) {
            cost[at(rank) * at(processes) + at(process)] -= count.held(e, place, klass, process);
          }
        };
        count_holders(part);
        std::ranges::for_each(part.copies, count_holders);
      }
    }
  }
  std::vector<int> map = assign(cost, processes);
  map.resize(at(target.degree));
  return map;
}

}  // namespace shardcheck
