#include "shardcheck/reshard/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "matched.h"
#include "shards.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

constexpr std::size_t kDims = Piece::kMaxRank;

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

}  // namespace

std::int64_t Copy::elements() const {
  std::int64_t product = 1;
  for (int d = 0; d < dims; ++d) product *= size[at(d)];
  return product;
}

std::vector<Piece> pieces(const Layout& layout) {
  const Layout logical = logical_layout(layout.geometry);
  // An addend lies where the whole would: pieces say where, not what.
  const Layout whole = without_partial(layout);
  std::vector<Piece> all;
  for (const Copy& copy : make_plan(logical, whole).copies) {
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
      if (std::ssize(plan.copies) > kMaxCopies) {
        throw UnsupportedLayout(fmt::format("a plan from {} to {} has more than {} copies",
                                            to_string(source.name), to_string(target.name), kMaxCopies));
      }
    }
  }
  for (const Copy& copy : plan.copies) {
    plan.elements_moved += copy.elements();
    if (copy.source_rank == processes.of(copy.target_rank)) plan.elements_local += copy.elements();
  }
  return plan;
}

}  // namespace shardcheck
