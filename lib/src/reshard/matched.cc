#include "matched.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shardcheck {
namespace {

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

}  // namespace

Processes::Processes(const Layout& target, const RankMap& map) : map_(map) {
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

Matched::Matched(const Layout& source_layout, const Layout& target_layout)
    : logical((require_same_geometry(source_layout, target_layout), source_layout.geometry)),
      source((refuse_partial(source_layout), logical), source_layout),
      target((refuse_partial(target_layout), logical), target_layout),
      match(source, target) {}

}  // namespace shardcheck
