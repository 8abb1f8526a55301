// Where the ranks of a source hold what a rank of a target wants, dimension by dimension. Private to the
// room.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "entry_view.h"

namespace shardcheck {

/// Consecutive indices that a target rank wants and an interval of the source holds.
struct Overlap {
  std::int64_t target_local = 0;
  std::int64_t offset = 0;  // from the interval's begin
  std::int64_t length = 0;
  const Interval* interval = nullptr;
};

/// One part of a target form against one part of a source form, for every class of target ranks.
class PartMatch {
 public:
  PartMatch(const EntryView& source, std::int64_t source_part, const EntryView& target,
            std::int64_t target_part);

  /// Overlaps along a dimension of the target that is no stack, in local order.
  const std::vector<Overlap>& overlaps(int target_class, int dim) const {
    return overlaps_[static_cast<std::size_t>(target_class) * static_cast<std::size_t>(dims_) +
                     static_cast<std::size_t>(dim)];
  }

 private:
  int dims_ = 0;
  std::vector<std::vector<Interval>> intervals_;  // of the source, by target dimension
  std::vector<std::vector<Overlap>> overlaps_;
};

/// A part of a target entry with where the source holds it.
struct MatchedPart {
  std::int32_t source_entry = 0;
  std::int64_t source_item = 0, target_item = 0;  // on the stacks
  const PartMatch* match = nullptr;
  const std::vector<Interval>* source_stack = nullptr;  // holders of the item; null without a stack
  std::vector<MatchedPart> copies = {};                 // tied ones, elsewhere in the source

  /// Where a process would read it: a copy that it holds itself, else the entry that is no copy.
  const MatchedPart& nearest(const Layout& source, int process) const;
};

/// Every part of every target entry matched; what forms share is computed once.
class LayoutMatch {
 public:
  LayoutMatch(const LayoutView& source, const LayoutView& target);

  const std::vector<MatchedPart>& parts(std::size_t target_entry) const { return parts_[target_entry]; }

 private:
  using PartKey = std::tuple<const EntryView*, std::int64_t, const EntryView*, std::int64_t>;

  MatchedPart matched(const LayoutView& source, const LayoutView::Place& place, const EntryView& wanted,
                      std::int64_t target_part);

  std::map<PartKey, std::unique_ptr<const PartMatch>> matches_;
  std::map<std::pair<const EntryView*, std::int64_t>, std::vector<Interval>> stacks_;
  std::vector<std::vector<MatchedPart>> parts_;
};

/// Position of a stacked item on the ranks of a class, -1 where they do not hold it.
std::int64_t stack_position(const EntryView& view, int klass, std::int64_t item);

}  // namespace shardcheck
