#include "shardcheck/layout/layout_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "layout/file_blocks.h"
#include "layout/rank_classes.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxBlocks = 16;  // of a row map

const Selection* selection_of(const std::vector<Selection>& selections, int dim) {
  const auto found = std::find_if(selections.begin(), selections.end(),
                                  [dim](const Selection& selection) { return selection.dim == dim; });
  return found == selections.end() ? nullptr : &*found;
}

/// "columns" for the second dimension of a logical tensor.
std::string_view dimension_word(const LayoutEntry& entry, int dim) {
  const int dims = static_cast<int>(entry.placed.shape().size());
  const int logical = entry.arrangement().logical_dim(dim, dims);
  return logical < 0 ? "experts" : logical == 0 ? "rows" : logical == 1 ? "columns" : "slices";
}

std::size_t parts_per_item(const LayoutEntry& entry) {
  return entry.parts.size() /
         static_cast<std::size_t>(std::max<std::int64_t>(entry.arrangement().stacked, 1));
}

/// One text per part that `runs`, indices along the arrangement's dimension, reach.
std::vector<std::string> parts_text(const LayoutEntry& entry, const std::vector<Run>& runs) {
  const Arrangement& arranged = entry.arrangement();
  std::map<std::int64_t, std::vector<Run>> by_part;
  std::int64_t padding = 0;
  for (const PartRun& run : part_runs(arranged, part_extents(arranged, entry.parts), runs)) {
    if (run.part == kPadding) {
      padding += run.length;
    } else {
      by_part[run.part].push_back({run.begin, run.length});
    }
  }
  const bool columns = dimension_word(entry, arranged.dim) != "rows";
  std::vector<std::string> texts;
  for (auto& [part, held] : by_part) {
    texts.push_back(fmt::format("{}{}{}", entry.parts[static_cast<std::size_t>(part)].role,
                                columns ? " columns" : "", ranges_of(std::move(held))));
  }
  if (padding > 0) texts.push_back(fmt::format("padding of {}", padding));
  return texts;
}

/// The parts by name, for a tensor that ranks cut along other dimensions only.
std::vector<std::string> part_names(const LayoutEntry& entry) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < parts_per_item(entry); ++p) names.push_back(entry.parts[p].role);
  return names;
}

/// Who keeps what of the arrangement's dimension: a label and rows of the file.
using Keeper = std::pair<std::string, std::vector<Run>>;

std::vector<Keeper> keepers_of(const LayoutEntry& entry) {
  const int dim = entry.arrangement().dim;
  std::vector<Keeper> keepers;
  for (const std::vector<int>& ranks : ranks_by_class(entry)) {
    const Selection* held = selection_of(entry.placed.selections(ranks.front()), dim);
    const std::string label = class_label(entry, ranks.front(), dim);
    const auto same = [&](const Keeper& keeper) { return keeper.first == label; };
    if (held != nullptr && std::none_of(keepers.begin(), keepers.end(), same)) {
      keepers.emplace_back(label, held->runs);
    }
  }
  return keepers;
}

}  // namespace

std::string ranges_text(const std::vector<int>& ascending) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < ascending.size(); i = end) {
    for (end = i + 1; end < ascending.size() && ascending[end] == ascending[end - 1] + 1;) ++end;
    if (!text.empty()) text += ' ';
    text += range_text(ascending[i], static_cast<std::int64_t>(end - i));
  }
  return text;
}

std::vector<std::string> held_parts(const LayoutEntry& entry, int rank) {
  const std::vector<Selection>& selections = entry.placed.selections(rank);
  if (element_count(entry.placed.local_shape(rank)) == 0) return {"nothing"};
  if (selections.empty()) return {"all"};
  const int side = entry.arrangement().dim;
  const Selection* along = selection_of(selections, side);
  std::vector<std::string> texts = along != nullptr ? parts_text(entry, along->runs) : part_names(entry);
  for (const Selection& selection : selections) {
    if (selection.dim == side) continue;
    const std::string cut =
        fmt::format("{}{}", dimension_word(entry, selection.dim), ranges_of(selection.runs));
    if (along == nullptr && texts.size() == 1) {
      texts.front() += ' ' + cut;
    } else {
      texts.push_back(cut + (parts_per_item(entry) > 1 ? " of each" : ""));
    }
  }
  return texts;
}

std::string row_map(const LayoutEntry& entry) {
  const std::vector<Keeper> keepers = keepers_of(entry);
  if (parts_per_item(entry) < 2 || keepers.size() < 2) return {};
  const std::vector<Block> blocks = blocks_of(entry);
  std::size_t label_width = 0;
  for (const Block& block : blocks) label_width = std::max(label_width, block.label.size());
  const auto extent = entry.placed.shape()[static_cast<std::size_t>(entry.arrangement().dim)];
  const std::size_t width = 2 * fmt::to_string(extent - 1).size() + 1;
  const std::string edge = fmt::format("    {:{}}  +{:-<{}}+\n", "", label_width, "", width + 2);
  const std::string_view word =
      entry.arrangement().dim == (entry.arrangement().stacked > 0 ? 1 : 0) ? "rows" : "columns";
  std::string text = fmt::format("    {:{}}   {:^{}}\n", "", label_width, word, width + 2);
  text.erase(text.find_last_not_of(" \n") + 1);
  text += '\n' + edge;
  for (std::size_t b = 0; b < std::min(blocks.size(), kMaxBlocks); ++b) {
    std::string label = blocks[b].label;
    std::string rows = range_text(blocks[b].file.global, blocks[b].file.length);
    for (const auto& [keeper, runs] : keepers) {
      const std::string kept = kept_of(blocks[b], runs);
      if (kept.empty()) continue;
      text += fmt::format("    {:<{}}  | {:>{}} |  {}:{}\n", std::exchange(label, ""), label_width,
                          std::exchange(rows, ""), width, keeper, kept);
    }
  }
  text += edge;
  if (blocks.size() > kMaxBlocks) {
    text += fmt::format("    and {} more blocks in the same order\n", blocks.size() - kMaxBlocks);
  }
  return text;
}

}  // namespace shardcheck
