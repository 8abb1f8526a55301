// Every parameter of a layout once per distinct shape.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "layout/rank_classes.h"
#include "layout/table_rule.h"
#include "shardcheck/layout/layout_text.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxClasses = 64;
constexpr std::size_t kMaxHolders = 16;

/// Entries of one rule that share shape, arrangement and placement.
struct Group {
  const TableRule* rule = nullptr;
  std::vector<const LayoutEntry*> entries;

  const LayoutEntry& first() const { return *entries.front(); }
  const PlacedTensor& placed() const { return first().placed; }
};

std::int64_t layer_of(const LayoutEntry& entry) { return entry.parts.front().layer; }
std::int64_t expert_of(const LayoutEntry& entry) { return entry.parts.front().expert; }

/// Throws std::invalid_argument for an entry of another table.
const TableRule& rule_of(const LayoutTable& table, const LayoutEntry& entry) {
  for (const TableRule& rule : table.rules()) {
    if (rule.tied() == entry.tied && rule.name(layer_of(entry), expert_of(entry)) == entry.name) return rule;
  }
  throw std::invalid_argument(fmt::format("table '{}' has no rule for '{}'", table.name(), entry.name));
}

/// In the order of the layout; shapes of one rule may alternate from layer to layer.
std::vector<Group> groups_of(const LayoutTable& table, const Layout& layout) {
  std::vector<Group> groups;
  for (const LayoutEntry& entry : layout.entries) {
    const auto same = [&](const Group& group) {
      return group.placed().identity() == entry.placed.identity() &&
             group.rule->name(layer_of(entry), expert_of(entry)) == entry.name;
    };
    auto group = std::find_if(groups.rbegin(), groups.rend(), same);
    if (group == groups.rend()) {
      groups.push_back({&rule_of(table, entry), {}});
      group = groups.rbegin();
    }
    group->entries.push_back(&entry);
  }
  return groups;
}

/// "3", "{0..3}" or "{0..2,5}".
std::string folded(const std::set<int>& numbers) {
  if (numbers.size() == 1) return fmt::to_string(*numbers.begin());
  std::string text = ranges_text({numbers.begin(), numbers.end()});
  std::replace(text.begin(), text.end(), ' ', ',');
  for (std::size_t at = text.find('-'); at != std::string::npos; at = text.find('-'))
    text.replace(at, 1, "..");
  return '{' + text + '}';
}

std::set<int> numbers_of(const std::vector<const LayoutEntry*>& entries,
                         std::int64_t (*number)(const LayoutEntry&)) {
  std::set<int> numbers;
  for (const LayoutEntry* entry : entries) numbers.insert(static_cast<int>(number(*entry)));
  return numbers;
}

std::string folded_name(const Group& group) {
  std::string name = group.rule->pattern();
  const auto fold = [&](std::string_view placeholder, std::int64_t (*number)(const LayoutEntry&)) {
    const std::size_t at = name.find(placeholder);
    if (at == std::string::npos) return;
    name.replace(at, placeholder.size(), folded(numbers_of(group.entries, number)));
  };
  fold("{layer}", layer_of);
  fold("{expert}", expert_of);
  return name;
}

std::string placements_text(const PlacedTensor& placed) {
  std::string text;
  for (const auto& [axis, placement] : placed.placements()) {
    if (!text.empty()) text += ", ";
    text += to_string(placement);
    if (axis != Axis::tp) text += fmt::format(" over {}", to_string(axis));
  }
  return text;
}

/// What the file's tensor is besides its parts one after the other.
std::string arrangement_text(const Arrangement& arrangement) {
  std::string text;
  const std::int64_t padding = padding_in(arrangement.order);
  bool rearranged = false;
  for (std::size_t i = 0; i < arrangement.order.size(); ++i) {
    const Run& run = arrangement.order[i];
    rearranged = rearranged || (i == 0 && run.global > 0) ||
                 (i > 0 && run.global >= 0 && arrangement.order[i - 1].global > run.global);
  }
  if (arrangement.transposed) text += ", transposed";
  if (arrangement.stacked > 0) text += fmt::format(", {} experts stacked", arrangement.stacked);
  if (rearranged) text += ", interleaved";
  if (padding > 0) text += fmt::format(", padded by {}", padding);
  if (arrangement.shift != 0) text += fmt::format(", value {:+}", arrangement.shift);
  return text;
}

std::string header(const Group& group) {
  std::string roles = group.rule->roles().front();
  for (std::size_t i = 1; i < group.rule->roles().size(); ++i) roles += ' ' + group.rule->roles()[i];
  return fmt::format("{} {}: {}; {}{}{}\n", folded_name(group), to_string(group.placed().shape()), roles,
                     placements_text(group.placed()), arrangement_text(group.first().arrangement()),
                     group.first().tied ? ", a tied copy" : "");
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranges_text(ranks));
}

/// Which ranks hold which layers and experts, where not all ranks hold all of them.
std::string holders_text(const Group& group) {
  std::map<Coordinates, std::vector<const LayoutEntry*>> by_place;
  for (const LayoutEntry* entry : group.entries) by_place[entry->placed.held()].push_back(entry);
  std::string text;
  std::size_t lines = 0;
  for (const auto& [held, entries] : by_place) {
    if (held.empty()) continue;
    if (++lines > kMaxHolders) continue;
    std::string place, what;
    for (const auto& [axis, coordinate] : held) {
      place += fmt::format("{}{} {}", place.empty() ? "" : ", ", to_string(axis), coordinate);
    }
    if (layer_of(*entries.front()) >= 0) what = " layers " + folded(numbers_of(entries, layer_of));
    if (group.rule->scope() == RoleScope::expert && !group.rule->stacks_experts()) {
      what += " experts " + folded(numbers_of(entries, expert_of));
    }
    text += fmt::format("  on {} ({}){}{}\n", place, ranks_text(entries.front()->placed.holders()),
                        what.empty() ? "" : ":", what);
  }
  if (lines > kMaxHolders) text += fmt::format("  and {} more places\n", lines - kMaxHolders);
  return text;
}

/// What one class holds; of a tensor cut along one dimension, a part that an earlier class holds too says so.
std::string class_holds(const LayoutEntry& entry, const std::string& label, int rank,
                        std::map<std::string, std::string>& seen) {
  std::string text;
  for (const std::string& part : held_parts(entry, rank)) {
    const auto [first, is_new] = seen.emplace(part, label);
    const bool replica = !is_new && entry.placed.selections(rank).size() == 1 &&
                         part.find_first_of("0123456789") != std::string::npos &&
                         !part.starts_with("padding");
    if (!text.empty()) text += ", ";
    text += part;
    if (replica) text += fmt::format(" (as {})", first->second);
  }
  return text;
}

std::string ranks_hold(const Group& group) {
  const LayoutEntry& entry = group.first();
  const std::vector<std::vector<int>> classes = ranks_by_class(entry);
  if (entry.placed.is_partial()) return "  every rank: an addend\n";
  if (classes.size() == 1) return "  every rank: all\n";
  const bool one_place =
      std::all_of(group.entries.begin(), group.entries.end(),
                  [&](const LayoutEntry* other) { return other->placed.held() == entry.placed.held(); });
  std::map<std::string, std::string> seen;  // a part and who held it first
  std::string text;
  for (std::size_t c = 0; c < std::min(classes.size(), kMaxClasses); ++c) {
    const std::string label = class_label(entry, classes[c].front());
    const bool named = label.starts_with("rank") && classes[c].size() == 1;
    const std::string ranks = one_place && !named ? fmt::format(" ({})", ranks_text(classes[c])) : "";
    text += fmt::format("  {}{}: {}\n", label, ranks, class_holds(entry, label, classes[c].front(), seen));
  }
  if (classes.size() > kMaxClasses) text += fmt::format("  and {} more\n", classes.size() - kMaxClasses);
  return text;
}

}  // namespace

std::string layout_text(const LayoutTable& table, const Layout& layout) {
  std::string text;
  for (const Group& group : groups_of(table, layout)) {
    text += header(group) + holders_text(group) + ranks_hold(group) + row_map(group.first());
  }
  return text;
}

}  // namespace shardcheck
