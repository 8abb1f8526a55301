// What the ranks of a layout hold, in words: intervals of logical tensors and maps of fused rows.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Ascending numbers as inclusive ranges: "0-3 7".
std::string ranges_text(const std::vector<int>& ascending);

/// What a rank that holds an entry holds of it, one text per logical tensor of a stack's item, in indices of
/// the logical tensors: {"q 128-255", "k 32-63", "v 32-63"}, {"o_proj columns 0-127"}, {"padding of 51"},
/// {"all"}, {"nothing"}. Ranges are inclusive and ascending, whatever the order in the file.
std::vector<std::string> held_parts(const LayoutEntry& entry, int rank);

/// A picture of a fused tensor: its parts from top to bottom with their rows (or columns) in the file, and
/// beside each what every rank keeps of it. Empty unless several parts follow each other along a dimension
/// that ranks cut.
std::string row_map(const LayoutEntry& entry);

/// Every parameter once per distinct shape, layers and experts folded ("layers.{0..3}.qkv [384, 256]"), then
/// what each rank holds and the row map. Throws std::invalid_argument for a layout of another table.
std::string layout_text(const LayoutTable& table, const Layout& layout);

}  // namespace shardcheck
