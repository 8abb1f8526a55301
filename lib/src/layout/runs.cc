#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "shardcheck/layout/placement.h"

namespace shardcheck {
void append_run(std::vector<Run>& runs, Run run) {
  if (run.length == 0) return;
  if (!runs.empty()) {
    Run& last = runs.back();
    const bool padding = last.global == kPadding && run.global == kPadding;
    const bool continues = last.global != kPadding && last.global + last.length == run.global;
    if (padding || continues) {
      last.length += run.length;
      return;
    }
  }
  runs.push_back(run);
}

std::int64_t padding_in(const std::vector<Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0}, [](std::int64_t sum, const Run& run) {
    return sum + (run.global == kPadding ? run.length : 0);
  });
}

std::vector<Run> compose_runs(const std::vector<Run>& outer, const std::vector<Run>& inner) {
  std::vector<std::int64_t> ends(outer.size());
  std::transform_inclusive_scan(outer.begin(), outer.end(), ends.begin(), std::plus<>(),
                                [](const Run& run) { return run.length; });
  std::vector<Run> composed;
  for (const Run& run : inner) {
    if (run.global == kPadding) {
      append_run(composed, run);
      continue;
    }
    auto at = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), run.global) - ends.begin());
    for (std::int64_t done = 0; done < run.length; ++at) {
      const Run& under = outer.at(at);
      const std::int64_t skipped = run.global + done - (ends[at] - under.length);
      const std::int64_t length = std::min(run.length - done, under.length - skipped);
      append_run(composed, {under.global == kPadding ? kPadding : under.global + skipped, length});
      done += length;
    }
  }
  return composed;
}

std::int64_t length_of(const std::vector<Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0},
                         [](std::int64_t sum, const Run& run) { return sum + run.length; });
}

std::vector<Run> inverse_runs(const std::vector<Run>& runs) {
  std::vector<std::pair<std::int64_t, Run>> placed;  // index in the order, and where it lies
  std::int64_t position = 0;
  for (const Run& run : runs) {
    placed.push_back({run.global, {position, run.length}});
    position += run.length;
  }
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Run> inverse;
  for (const auto& [index, run] : placed) append_run(inverse, run);
  return inverse;
}

namespace {

/// First row of each part among the stacked ones, and at the end their number. Throws as `runs_of`.
std::vector<std::int64_t> origins_of(const Interleave& interleave) {
  const auto& [groups, units] = interleave;
  if (groups < 1 || units.empty() || *std::min_element(units.begin(), units.end()) < 1) {
    throw UnsupportedLayout(fmt::format("interleave: {} groups of [{}] rows; allowed: positive numbers",
                                        groups, fmt::join(units, ", ")));
  }
  std::vector<std::int64_t> origins;
  std::int64_t total = 0;
  for (const std::int64_t unit : units) {
    std::int64_t rows = 0;
    origins.push_back(total);
    if (__builtin_mul_overflow(unit, groups, &rows) || __builtin_add_overflow(total, rows, &total)) {
      throw UnsupportedLayout(fmt::format("interleave: {} groups of [{}] rows do not fit 64 bits", groups,
                                          fmt::join(units, ", ")));
    }
  }
  if (groups > kMaxRuns / std::ssize(units)) {
    throw UnsupportedLayout(fmt::format("interleave: {} groups of [{}] rows; allowed: at most {} blocks",
                                        groups, fmt::join(units, ", "), kMaxRuns));
  }
  origins.push_back(total);
  return origins;
}

}  // namespace

std::vector<Run> runs_of(const Interleave& interleave) {
  return slice_of(interleave, 0, origins_of(interleave).back());
}

std::vector<Run> slice_of(const Interleave& interleave, std::int64_t begin, std::int64_t length) {
  const std::vector<std::int64_t> origins = origins_of(interleave);
  const auto& [groups, units] = interleave;
  const std::int64_t rows = std::accumulate(units.begin(), units.end(), std::int64_t{0});
  std::vector<Run> runs;
  for (std::int64_t group = begin / rows; group < groups && group * rows < begin + length; ++group) {
    std::int64_t at = group * rows;
    for (std::size_t part = 0; part < units.size(); ++part) {
      const std::int64_t first = std::max(begin, at), end = std::min(begin + length, at + units[part]);
      if (first < end) append_run(runs, {origins[part] + group * units[part] + first - at, end - first});
      at += units[part];
    }
  }
  return runs;
}

}  // namespace shardcheck
