// What `shardcheck layouts` works on: a table of the library or of a file, a geometry, the tensors of a
// folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_match.h"

namespace shardcheck {

/// The small model a table is shown with when no other is named: the seed document's where the table takes
/// it, else one with the parts of its family.
Geometry example_geometry(const LayoutTable& table);

/// A folder of safetensors: the files an index names, else model.safetensors, else every *.safetensors.
struct TensorFolder {
  std::vector<FileTensors> files;
  std::optional<LayoutName> recorded;  // what shardcheck.json says the layout is
  std::optional<Geometry> geometry;    // of shardcheck.json or config.json
  std::string geometry_source;         // "config.json", or why it was not used
};
/// Throws InvalidCheckpoint, also for a rank file that shardcheck.json tells of and that is not there,
/// IoError; InvalidInput for a folder without such files.
TensorFolder read_tensor_folder(const std::filesystem::path& folder);

}  // namespace shardcheck
