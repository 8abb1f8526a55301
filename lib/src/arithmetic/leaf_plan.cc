#include "arithmetic/leaf_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "arithmetic/ceil_div.h"

namespace shardcheck {
namespace {

class PlanBuilder {
 public:
  // A leaf longer than a segment is walked in equal pieces.
  void add_leaf(std::int64_t columns, int slot, int merges) {
    const std::int64_t pieces = ceil_div(columns, LeafPlan::kSegmentColumns);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t begin = columns * piece / pieces;
      const std::int64_t end = columns * (piece + 1) / pieces;
      add_step({.columns = static_cast<std::int32_t>(end - begin),
                .slot = slot,
                .merges = piece + 1 == pieces ? merges : 0,
                .starts_leaf = piece == 0});
    }
  }

  LeafPlan finish() {
    std::int32_t before = 0;  // entries that the segment finds
    for (LeafSegment& segment : plan_.segments) {
      const LeafStep& last = plan_.steps[segment.last_step - 1];
      const std::int32_t after = last.slot + 1 - last.merges;
      segment.kept = std::max(before, after);
      plan_.kept_depth = std::max(plan_.kept_depth, segment.kept);
      before = after;
    }
    return std::move(plan_);
  }

 private:
  void add_step(LeafStep step) {
    auto& segments = plan_.segments;
    if (segments.empty() || segments.back().columns + step.columns > LeafPlan::kSegmentColumns) {
      segments.push_back({plan_.steps.size(), plan_.steps.size(), plan_.columns, 0});
    }
    segments.back().last_step += 1;
    segments.back().columns += step.columns;
    plan_.steps.push_back(step);
    plan_.columns += step.columns;
    plan_.stack_depth = std::max(plan_.stack_depth, step.slot + 1);
  }

  LeafPlan plan_;
};

LeafPlan make_plan(TreeShape shape, std::int64_t k, std::int64_t leaf) {
  const std::int64_t width = leaf == 0 ? k : leaf;
  PlanBuilder builder;
  if (k == 0) return builder.finish();
  const std::int64_t leaves = ceil_div(k, width);
  const MergeSchedule schedule = merge_schedule(shape, leaves, 0, leaves);
  int slot = 0;
  for (std::int64_t l = 0; l < leaves; ++l) {
    const int merges = schedule.merges[static_cast<std::size_t>(l)];
    builder.add_leaf(std::min(width, k - l * width), slot, merges);
    slot += 1 - merges;
  }
  return builder.finish();
}

// A model has a handful of sums; the limit only bounds the memory of a long random run.
constexpr std::size_t kCachedEntries = 256;

template <typename Map, typename Make>
const typename Map::mapped_type& find_or_make(Map& cache, const typename Map::key_type& key, Make make) {
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kCachedEntries) cache.clear();
  return cache.emplace(key, make()).first->second;
}

}  // namespace

const LeafPlan& leaf_plan(TreeShape shape, std::int64_t k, std::int64_t leaf) {
  thread_local std::map<std::tuple<TreeShape, std::int64_t, std::int64_t>, LeafPlan> cache;
  return find_or_make(cache, {shape, k, leaf}, [&] { return make_plan(shape, k, leaf); });
}

const MergeSchedule& kept_schedule(TreeShape shape, std::int64_t leaves, std::int64_t first,
                                   std::int64_t last) {
  thread_local std::map<std::tuple<TreeShape, std::int64_t, std::int64_t, std::int64_t>, MergeSchedule> cache;
  return find_or_make(cache, {shape, leaves, first, last},
                      [&] { return merge_schedule(shape, leaves, first, last); });
}

const MergeSchedule& whole_schedule(TreeShape shape, std::int64_t leaves) {
  return kept_schedule(shape, leaves, 0, leaves);
}

}  // namespace shardcheck
