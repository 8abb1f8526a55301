// What a layout table and its consumer can do with a geometry: derived by probing, never listed.
#pragma once

#include <string>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// `table` at a tensor-parallel degree; degree 1 names no axis.
LayoutName layout_at(const std::string& table, int degree);

/// Whether every placement of the layout can be constructed for the geometry.
bool is_representable(const LayoutName& name, const Geometry& geometry);

/// Whether that, and the table's consumer runs a forward pass over those axes at those degrees.
bool is_runnable(const LayoutName& name, const Geometry& geometry);

}  // namespace shardcheck
