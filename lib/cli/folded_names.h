// Parameters that differ in their layer alone, under one name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// "layers.{}.qkv" for layers.3.qkv: its name with the layer left out.
std::string name_pattern(const LayoutEntry& entry);

/// "layers.{0-3}.qkv" for entries of one pattern, the name itself for a single one; `entries` ascending by
/// layer.
std::string folded_name(const Layout& layout, const std::vector<std::int64_t>& entries);

}  // namespace shardcheck
