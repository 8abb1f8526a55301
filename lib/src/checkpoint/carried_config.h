// What a config.json that is carried along says about the files it will lie beside. Private to the checkpoint
// folder.
#pragma once

#include <filesystem>
#include <string>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Throws InvalidCheckpoint naming the fields when `folder` has a config.json of a supported family whose
/// geometry is not the layout's.
void require_config_of(const std::filesystem::path& folder, const Layout& layout);

/// A sentence for the user when `folder` has a config.json of a model_type whose files have the names of
/// another table than the layout's; else empty.
std::string config_warning(const std::filesystem::path& folder, const Layout& layout);

}  // namespace shardcheck
