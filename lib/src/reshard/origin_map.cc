#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "layout/file_blocks.h"
#include "origin_lines.h"
#include "shardcheck/reshard/misplacement.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxBlocks = 16;
constexpr std::size_t kMaxRanks = 8;

/// What one rank should hold of a block and what it holds.
struct MapLine {
  std::string rank, expected, found;
};

struct RankLines {
  int rank = 0;
  LineRuns expected, found;
};

std::vector<Run> runs_of_tensor(const LineRuns& lines, std::int64_t entry) {
  std::vector<Run> runs;
  for (const LineRun& line : lines) {
    if (line.kind == OriginBox::Kind::element && line.entry == entry)
      runs.push_back({line.lowest(), line.length});
  }
  return runs;
}

std::string shown(const std::string& ranges) { return ranges.empty() ? "-" : ranges.substr(1); }

/// Lines that are of no block: zero, of no tensor, of another one.
std::string elsewhere(const Layout& layout, std::int64_t entry, const LineRuns& found,
                      std::string_view word) {
  std::string text;
  const auto add = [&](std::int64_t lines, const std::string& what) {
    if (lines > 0) text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", lines, word, what);
  };
  std::int64_t zero = 0, unknown = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> others;
  for (const LineRun& run : found) {
    if (run.kind == OriginBox::Kind::zero) zero += run.length;
    if (run.kind == OriginBox::Kind::unknown) unknown += run.length;
    if (run.kind != OriginBox::Kind::element || run.entry == entry) continue;
    const auto same = std::ranges::find(others, run.entry, &std::pair<std::int64_t, std::int64_t>::first);
    if (same == others.end()) {
      others.emplace_back(run.entry, run.length);
    } else {
      same->second += run.length;
    }
  }
  add(zero, "of zeros");
  add(unknown, "of no tensor of the checkpoint");
  for (const auto& [other, lines] : others) add(lines, "of " + layout.entries[at(other)].name);
  return text;
}

class Map {
 public:
  Map(const Layout& layout, std::int64_t entry, std::size_t dim, std::vector<RankLines> ranks)
      : layout_(layout), entry_(entry), dim_(dim), ranks_(std::move(ranks)) {}

  std::string text() const {
    const std::vector<Block> blocks = file_blocks();
    std::size_t label_width = 0, width = line_word(own(), dim_).size();
    for (const Block& block : blocks) label_width = std::max(label_width, block.label.size());
    for (const Block& block : blocks) width = std::max(width, rows_text(block).size());
    std::size_t rank_width = 0, expected_width = std::string_view("expected").size();
    for (const RankLines& rank : ranks_) rank_width = std::max(rank_width, rank_text(rank).size());
    for (const Block& block : blocks) {
      for (const MapLine& line : lines_of(block))
        expected_width = std::max(expected_width, line.expected.size());
    }
    const std::string edge = fmt::format("    {:{}}  +{:-<{}}+", "", label_width, "", width + 2);
    std::string text = fmt::format("    {:{}}   {:^{}}    {:{}}  {:{}}  found\n", "", label_width,
                                   line_word(own(), dim_), width, "", rank_width, "expected", expected_width);
    text += edge + '\n';
    for (const Block& block : blocks) {
      std::string label = block.label, rows = rows_text(block);
      for (const MapLine& line : lines_of(block)) {
        text += fmt::format("    {:<{}}  | {:>{}} |  {:<{}}  {:<{}}  {}\n", std::exchange(label, ""),
                            label_width, std::exchange(rows, ""), width, line.rank, rank_width, line.expected,
                            expected_width, line.found);
      }
    }
    return text + edge + '\n' + footer();
  }

 private:
  const LayoutEntry& own() const { return layout_.entries[at(entry_)]; }
  static std::string rank_text(const RankLines& rank) { return fmt::format("rank {}:", rank.rank); }
  static std::string rows_text(const Block& block) {
    return range_text(block.file.global, block.file.length);
  }

  /// The parts where they follow each other along the dimension of the lines, else the whole as one.
  std::vector<Block> file_blocks() const {
    if (static_cast<std::size_t>(own().arrangement().dim) == dim_) {
      std::vector<Block> blocks = blocks_of(own());
      if (blocks.size() <= kMaxBlocks) return blocks;
    }
    return {{own().parts.front().role, {0, own().placed.shape()[dim_]}}};
  }

  std::vector<MapLine> lines_of(const Block& block) const {
    std::vector<MapLine> lines;
    for (const RankLines& rank : ranks_) {
      const std::string expected = kept_of(block, runs_of_tensor(rank.expected, entry_));
      const std::string found = kept_of(block, runs_of_tensor(rank.found, entry_));
      if (expected.empty() && found.empty() && !lines.empty()) continue;
      lines.push_back({rank_text(rank), shown(expected), shown(found)});
    }
    return lines;
  }

  std::string footer() const {
    std::string text;
    for (const RankLines& rank : ranks_) {
      const std::string other = elsewhere(layout_, entry_, rank.found, line_word(own(), dim_));
      if (!other.empty()) text += fmt::format("    {} also {}\n", rank_text(rank), other);
    }
    return text;
  }

  const Layout& layout_;
  std::int64_t entry_;
  std::size_t dim_;
  std::vector<RankLines> ranks_;
};

}  // namespace

std::string origin_map(const Layout& layout, const std::vector<const Misplacement*>& misplaced) {
  if (misplaced.empty()) return {};
  const std::int64_t entry = misplaced.front()->entry;
  const LayoutEntry& own = layout.entries[at(entry)];
  if (own.placed.shape().empty()) return {};
  const std::size_t dim = line_dim(own, misplaced.front()->rank);
  std::vector<RankLines> ranks;
  for (const int rank : own.placed.holders()) {
    RankLines lines{rank, expected_lines(layout, entry, rank, dim), {}};
    const auto found = std::ranges::find(misplaced, rank, &Misplacement::rank);
    if (found == misplaced.end()) {
      lines.found = lines.expected;
    } else if (const auto runs = lines_along(layout, entry, rank, dim, (*found)->found.boxes)) {
      lines.found = *runs;
    } else {
      return {};
    }
    if (ranks.size() < kMaxRanks) ranks.push_back(std::move(lines));
  }
  std::string text = Map(layout, entry, dim, std::move(ranks)).text();
  if (own.placed.holders().size() > kMaxRanks)
    text += fmt::format("    ranks beyond the first {} are left out\n", kMaxRanks);
  return text;
}

}  // namespace shardcheck
