#include "layout/file_blocks.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardcheck {

std::string range_text(std::int64_t begin, std::int64_t length) {
  return length == 1 ? fmt::to_string(begin) : fmt::format("{}-{}", begin, begin + length - 1);
}

std::string ranges_of(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.global < b.global; });
  std::vector<Run> merged;
  for (const Run& run : runs) append_run(merged, run);
  std::string text;
  for (std::size_t i = 0; i < std::min(merged.size(), kMaxRanges); ++i) {
    text += ' ' + range_text(merged[i].global, merged[i].length);
  }
  if (merged.size() > kMaxRanges) text += fmt::format(" and {} more ranges", merged.size() - kMaxRanges);
  return text;
}

std::vector<Block> blocks_of(const LayoutEntry& entry) {
  const Arrangement& arranged = entry.arrangement();
  const auto extent = entry.placed.shape()[static_cast<std::size_t>(arranged.dim)];
  std::vector<Block> blocks;
  for (const PartRun& run : part_runs(arranged, part_extents(arranged, entry.parts), {{0, extent}})) {
    const std::string label =
        run.part == kPadding ? "padding" : entry.parts[static_cast<std::size_t>(run.part)].role;
    if (!blocks.empty() && blocks.back().label == label) {
      blocks.back().file.length += run.length;
    } else {
      blocks.push_back({label, {run.position, run.length}});
    }
  }
  return blocks;
}

std::string kept_of(const Block& block, const std::vector<Run>& runs) {
  std::vector<Run> kept;
  for (const Run& run : runs) {
    const std::int64_t begin = std::max(run.global, block.file.global);
    const std::int64_t end = std::min(run.global + run.length, block.file.global + block.file.length);
    if (run.global != kPadding && begin < end) kept.push_back({begin, end - begin});
  }
  return kept.empty() ? "" : ranges_of(std::move(kept));
}

}  // namespace shardcheck
