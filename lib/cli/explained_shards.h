// What `shardcheck explain` works on, and how it is told: shards of a folder, their layout and the checkpoint
// they were made of.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/mutators/explain.h"

namespace shardcheck {

struct ExplainRequest {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> source;  // checkpoint; absent: the shards hold fingerprints
  std::optional<std::string> layout;            // name or file, with axes; absent: what the folder records
  std::optional<int> tp;
  std::optional<std::string> geometry;
  ExplainOptions options;
};

struct ExplainedShards {
  std::optional<Checkpoint> source;
  Layout layout;
  ShardedTensors shards;
  Explanation explanation;
};

/// Throws InvalidInput naming folder, file or option, UnsupportedLayout, IoError.
ExplainedShards explain_folder(const ExplainRequest& request);

/// What is misplaced, parameters that differ in their layer alone together, with a map of each; then the
/// causes. Empty lines apart every line ends with a line feed.
void print_explanation(const ExplainedShards& explained);

/// docs/explain_report.schema.json, but for what all reports have.
std::string explanation_json(const ExplainRequest& request, const ExplainedShards& explained,
                             const std::vector<std::string>& arguments, int exit_code);

}  // namespace shardcheck
