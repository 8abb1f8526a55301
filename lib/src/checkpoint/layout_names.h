// Names of stored tensors against a layout. Private to the checkpoint folder.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Names in the file of a rank, those of the entries that it holds.
std::set<std::string_view> names_on_rank(const Layout& layout, int rank);

/// Names of the tensors in a file.
std::set<std::string_view> names_of(const SafetensorsFile& file);

/// Throws InvalidCheckpoint naming `where` and up to five missing and five extra tensors unless `stored`
/// holds exactly `expected`. `authority` says who asks for them ("config.json").
void require_entry_names(const std::set<std::string_view>& expected, const std::set<std::string_view>& stored,
                         const std::string& where, std::string_view authority);

}  // namespace shardcheck
