// What plans and their bounds start from: two layouts matched part by part, and the processes that target
// ranks run in. Private to the room.
#pragma once

#include "match.h"

namespace shardcheck {

/// Which process each target rank runs in, checked.
class Processes {
 public:
  /// Throws std::invalid_argument for a map of another length or with a process twice.
  Processes(const Layout& target, const RankMap& map);
  int of(int target_rank) const {
    return map_.empty() ? target_rank : map_[static_cast<std::size_t>(target_rank)];
  }

 private:
  const RankMap& map_;
};

/// The two layouts matched part by part. Throws InvalidLayout for layouts of different geometries,
/// UnsupportedLayout for Partial placements.
struct Matched {
  Matched(const Layout& source_layout, const Layout& target_layout);

  LogicalIndex logical;
  LayoutView source, target;
  LayoutMatch match;
};

}  // namespace shardcheck
