// Ranks that hold the same of an entry, and what they are called. Private to the library.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Ranks that hold the entry, those of one class together, classes by their number.
std::vector<std::vector<int>> ranks_by_class(const LayoutEntry& entry);

/// "rank 1", or on a mesh of several axes the coordinates on those that cut `dim` (-1: any): "tp 1, dp 0".
std::string class_label(const LayoutEntry& entry, int rank, int dim = -1);

/// Dimension that a placement cuts, -1 for none.
int cut_dim(const Placement& placement);

}  // namespace shardcheck
