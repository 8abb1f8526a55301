#include "shardcheck/layout/layout_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "layout/geometry_guess.h"

namespace shardcheck {
namespace {

constexpr std::string_view kNoConsumer = "none";

std::size_t tensors_in(const std::vector<FileTensors>& ranks) {
  std::size_t all = 0;
  for (const FileTensors& rank : ranks) all += rank.shapes.size();
  return all;
}

/// What a rank's file should hold.
std::map<std::string, Shape, std::less<>> expected_on(const Layout& layout, int rank) {
  std::map<std::string, Shape, std::less<>> expected;
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.placed.held_by(rank)) expected.emplace(entry.file_name(), entry.placed.local_shape(rank));
  }
  return expected;
}

void note(TableMatch& match, std::size_t& counter, const std::string& problem) {
  ++counter;
  if (match.problem.empty()) match.problem = problem;
}

void compare_rank(const Layout& layout, int rank, const FileTensors& file, TableMatch& match) {
  const auto expected = expected_on(layout, rank);
  for (const auto& [name, shape] : expected) {
    const auto found = file.shapes.find(name);
    if (found == file.shapes.end()) {
      note(match, match.missing, fmt::format("{} lacks '{}'", file.file, name));
    } else if (found->second != shape) {
      note(match, match.misshapen,
           fmt::format("{} holds '{}' of shape {}, expected {}", file.file, name, to_string(found->second),
                       to_string(shape)));
    } else {
      ++match.matched;
    }
  }
  for (const auto& [name, shape] : file.shapes) {
    if (!expected.contains(name)) {
      note(match, match.extra,
           fmt::format("{} holds '{}', which the table does not expect", file.file, name));
    }
  }
}

/// Nothing of the table is there: every tensor is one too many.
TableMatch stranger(const LayoutName& layout, const std::vector<FileTensors>& ranks, const std::string& why) {
  TableMatch match;
  match.layout = layout;
  match.extra = tensors_in(ranks);
  match.problem = why;
  return match;
}

TableMatch compare(const LayoutTable& table, const std::vector<FileTensors>& ranks, const LayoutName& name,
                   const Geometry& geometry) {
  try {
    const Layout layout = table.instantiate(geometry, name);
    TableMatch match;
    match.layout = layout.name;
    match.geometry = geometry;
    for (int rank = 0; rank < layout.degree; ++rank) {
      compare_rank(layout, rank, ranks[static_cast<std::size_t>(rank)], match);
    }
    return match;
  } catch (const InvalidInput& error) {
    return stranger(name, ranks, error.what());
  } catch (const UnsupportedLayout& error) {
    return stranger(name, ranks, error.what());
  }
}

/// As given, and with its head stored or not as the files have it.
std::vector<Geometry> with_head(const Geometry& given, const GeometryGuess& guess) {
  std::vector<Geometry> all = {given, given};
  all.back().tied = !guess.has("lm_head");
  if (all.back() == given) all.pop_back();
  return all;
}

bool is_better(const TableMatch& a, const TableMatch& b) {
  return a.fits() != b.fits() ? a.fits() : a.share() > b.share();
}

}  // namespace

double TableMatch::share() const {
  const std::size_t all = matched + missing + extra + misshapen;
  return all == 0 ? 0.0 : static_cast<double>(matched) / static_cast<double>(all);
}

std::vector<FileTensors> join_files(std::vector<FileTensors> files, int ranks) {
  bool repeats = false;
  FileTensors joined{files.size() == 1 ? files.front().file : "the folder", {}};
  for (FileTensors& file : files) {
    std::erase_if(file.shapes,
                  [](const auto& tensor) { return tensor.first.ends_with("rotary_emb.inv_freq"); });
    for (const auto& [name, shape] : file.shapes) repeats |= !joined.shapes.emplace(name, shape).second;
  }
  const bool one_per_rank = repeats || (ranks > 1 && ranks == std::ssize(files));
  return one_per_rank ? files : std::vector<FileTensors>{std::move(joined)};
}

TableMatch match_table(const LayoutTable& table, const std::vector<FileTensors>& ranks,
                       const LayoutName& mesh, const std::optional<Geometry>& geometry) {
  LayoutName name = mesh;
  name.table = table.name();
  if (name.axes.empty() && ranks.size() > 1) name.axes = {{"tp", static_cast<int>(ranks.size())}};
  const int degree = name.mesh().size();
  if (degree != std::ssize(ranks)) {
    return stranger(name, ranks, fmt::format("a mesh of {} ranks, but files of {}", degree, ranks.size()));
  }
  const GeometryGuess guess(table, ranks, name);
  if (guess.known_names() <= guess.unknown_names()) {
    return stranger(name, ranks, fmt::format("no rule for '{}'", guess.first_unknown()));
  }
  const std::vector<Geometry> candidates = geometry ? with_head(*geometry, guess) : guess.geometries();
  TableMatch best = stranger(name, ranks, "the shapes are those of no model");
  for (const Geometry& candidate : candidates) {
    TableMatch match = compare(table, ranks, name, candidate);
    if (match.geometry && !geometry) match.guessed = guess.guessed();
    // A head that is stored as well unties nothing.
    if (match.geometry && geometry && geometry->tied) match.geometry->tied = true;
    if (match.geometry && geometry && geometry->tied != match.geometry->tied) match.guessed = {"tied"};
    if (match.fits()) return match;
    if (best.matched == 0 || is_better(match, best)) best = std::move(match);
  }
  return best;
}

void sort_matches(std::vector<TableMatch>& matches) {
  const auto executed = [](const TableMatch& match) {
    const std::vector<std::string> names = LayoutTable::built_in_names();
    const bool known = std::find(names.begin(), names.end(), match.layout.table) != names.end();
    return known && LayoutTable::built_in(match.layout.table).consumer() != kNoConsumer;
  };
  std::stable_sort(matches.begin(), matches.end(), [&](const TableMatch& a, const TableMatch& b) {
    if (is_better(a, b) != is_better(b, a)) return is_better(a, b);
    if (executed(a) != executed(b)) return executed(a);
    return a.layout.table < b.layout.table;
  });
}

}  // namespace shardcheck
