#include "explained_shards.h"

#include <fmt/format.h>

#include "folder_layout.h"
#include "geometry_option.h"
#include "shardcheck/checkpoint/shard_folder.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

/// Of the options, else of the record, else of the source.
Geometry geometry_for(const ExplainRequest& request, const std::optional<ShardFolderInfo>& info,
                      const std::optional<Checkpoint>& source) {
  const auto recorded = info ? info->geometry : std::nullopt;
  if (source && recorded && *recorded != source->config.geometry) {
    throw InvalidInput(fmt::format("{}: shards of another model ({}); the checkpoint has {}",
                                   request.folder.string(), to_string(*recorded),
                                   to_string(source->config.geometry)));
  }
  if (source && request.geometry)
    throw InvalidInput("--geometry: allowed without --source, whose model is known");
  if (source) return source->config.geometry;
  return geometry_of(request.folder, request.geometry);
}

std::string layout_for(const ExplainRequest& request, const std::optional<ShardFolderInfo>& info) {
  if (!request.layout && !request.tp) {
    if (info) return to_string(info->layout);
    throw InvalidInput(
        fmt::format("{}: shardcheck.json is missing, so the layout is unknown; allowed: --layout=NAME --tp=N",
                    request.folder.string()));
  }
  std::string text = request.layout.value_or(info ? info->layout.table : "vllm-llama");
  if (request.tp && !split_layout(text).second.empty())
    throw InvalidInput(fmt::format("--tp={}: --layout={} names the axes already", *request.tp, text));
  if (request.tp) text += fmt::format(":tp{}", *request.tp);
  return text;
}

Layout layout_of(const ExplainRequest& request, const std::optional<Checkpoint>& source) {
  const auto info = read_shard_folder_info(request.folder);
  const Layout layout = layout_at("layout", layout_for(request, info), geometry_for(request, info, source));
  if (info && to_string(info->layout) != to_string(layout.name)) {
    throw InvalidInput(fmt::format("{}: shards of {}, but {} is asked for (--layout, --tp)",
                                   request.folder.string(), to_string(info->layout), to_string(layout.name)));
  }
  return layout;
}

}  // namespace

ExplainedShards explain_folder(const ExplainRequest& request) {
  ExplainedShards result;
  if (request.source) result.source = load_source(*request.source, {});
  result.layout = layout_of(request, result.source);
  result.shards = read_rank_files(request.folder, result.layout);
  try {
    result.explanation = explain_shards(result.layout, result.shards,
                                        result.source ? &result.source->logical : nullptr, request.options);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}{}", request.folder.string(), error.what(),
                                   request.source ? "" : " (--source=CHECKPOINT)"));
  }
  return result;
}

}  // namespace shardcheck
