// The parts of a fused file tensor from top to bottom, and ranges of its rows as text. Private to the
// library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

inline constexpr std::size_t kMaxRanges = 8;  // that one line lists

/// "7" or "7-12", inclusive.
std::string range_text(std::int64_t begin, std::int64_t length);
/// Ranges in ascending order, neighbours merged, a blank in front of each: " 0-7 9".
std::string ranges_of(std::vector<Run> runs);

/// Consecutive rows of one part in the file.
struct Block {
  std::string label;
  Run file;
};
std::vector<Block> blocks_of(const LayoutEntry& entry);
/// Rows of a block that are among `runs`, as `ranges_of` writes them.
std::string kept_of(const Block& block, const std::vector<Run>& runs);

}  // namespace shardcheck
