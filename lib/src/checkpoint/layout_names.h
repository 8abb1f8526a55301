// Names of stored tensors against a layout. Private to the checkpoint folder.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Throws InvalidCheckpoint naming `where` and up to five missing and five extra tensors unless `stored`
/// holds exactly the entries of the layout. `authority` says who asks for them ("config.json").
void require_entry_names(const Layout& layout, const std::set<std::string_view>& stored,
                         const std::string& where, std::string_view authority);

}  // namespace shardcheck
