#include "match.h"

#include <algorithm>

namespace shardcheck {
namespace {

std::vector<Overlap> overlaps_of(const std::vector<DimRun>& wanted, std::int64_t item, bool by_item,
                                 const std::vector<Interval>& intervals) {
  std::vector<Overlap> overlaps;
  for (const DimRun& run : wanted) {
    if (by_item && run.item != item) continue;
    const std::int64_t end = run.begin + run.length;
    auto interval = std::partition_point(intervals.begin(), intervals.end(),
                                         [&](const Interval& one) { return one.end <= run.begin; });
    for (; interval != intervals.end() && interval->begin < end; ++interval) {
      const std::int64_t first = std::max(run.begin, interval->begin);
      const std::int64_t last = std::min(end, interval->end);
      overlaps.push_back({run.local + first - run.begin, first - interval->begin, last - first, &*interval});
    }
  }
  return overlaps;
}

}  // namespace

PartMatch::PartMatch(const EntryView& source, std::int64_t source_part, const EntryView& target,
                     std::int64_t target_part)
    : dims_(target.dims()) {
  for (int dim = 0; dim < dims_; ++dim) {
    const int logical_dim = target.logical_dim(dim);
    const int source_dim = logical_dim < 0 ? -1 : source.file_dim(logical_dim);
    intervals_.push_back(
        source_dim < 0 ? std::vector<Interval>{}
                       : source.intervals(source_dim, source_dim == source.part_dim() ? source_part : 0));
  }
  for (int klass = 0; klass < target.placed().classes(); ++klass) {
    for (int dim = 0; dim < dims_; ++dim) {
      overlaps_.push_back(overlaps_of(target.runs(klass, dim), target_part, dim == target.part_dim(),
                                      intervals_[static_cast<std::size_t>(dim)]));
    }
  }
}

const MatchedPart& MatchedPart::nearest(const Layout& source, int process) const {
  if (copies.empty() || process >= source.degree) return *this;
  for (const MatchedPart& copy : copies) {
    if (source.entries[static_cast<std::size_t>(copy.source_entry)].placed.held_by(process)) return copy;
  }
  return *this;
}

LayoutMatch::LayoutMatch(const LayoutView& source, const LayoutView& target) {
  for (std::size_t e = 0; e < target.layout().entries.size(); ++e) {
    const EntryView& wanted = target.view(e);
    std::vector<MatchedPart>& parts = parts_.emplace_back();
    for (std::size_t p = 0; p < target.layout().entries[e].parts.size(); ++p) {
      const std::vector<LayoutView::Place>& places = source.places(target.logical(e, p));
      const auto part = static_cast<std::int64_t>(p);
      parts.push_back(matched(source, places.front(), wanted, part));
      for (std::size_t i = 1; i < places.size(); ++i) {
        parts.back().copies.push_back(matched(source, places[i], wanted, part));
      }
    }
  }
}

MatchedPart LayoutMatch::matched(const LayoutView& source, const LayoutView::Place& place,
                                 const EntryView& wanted, std::int64_t target_part) {
  const EntryView& held = source.view(static_cast<std::size_t>(place.entry));
  const std::int64_t item = target_part / wanted.parts(), part = target_part % wanted.parts();
  auto& match = matches_[{&held, place.part, &wanted, part}];
  if (!match) match = std::make_unique<const PartMatch>(held, place.part, wanted, part);
  MatchedPart matched{place.entry, place.stack_item, item, match.get(), nullptr};
  if (held.has_stack()) {
    auto [stack, fresh] = stacks_.try_emplace({&held, place.stack_item});
    if (fresh) stack->second = held.intervals(0, place.stack_item);
    matched.source_stack = &stack->second;
  }
  return matched;
}

std::int64_t stack_position(const EntryView& view, int klass, std::int64_t item) {
  if (!view.has_stack()) return 0;
  const std::vector<DimRun>& runs = view.runs(klass, 0);
  const auto found =
      std::find_if(runs.begin(), runs.end(), [item](const DimRun& run) { return run.item == item; });
  return found == runs.end() ? -1 : found->local;
}

}  // namespace shardcheck
