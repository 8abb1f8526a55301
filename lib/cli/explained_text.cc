// How `shardcheck explain` tells what it found.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "explained_shards.h"
#include "folded_names.h"
#include "report_json.h"
#include "terminal.h"

namespace shardcheck {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxParameters = 12;
constexpr std::size_t kMaxRanks = 8;
constexpr std::size_t kMaxCauses = 8;
constexpr std::size_t kMaxBoxes = 1000;  // of one shard in a report

const LayoutEntry& entry_of(const Layout& layout, const Misplacement& m) {
  return layout.entries[static_cast<std::size_t>(m.entry)];
}

/// Everything a reader is told about one file tensor, without its layer.
std::string told_of(const Layout& layout, const std::vector<const Misplacement*>& ranks) {
  std::string text = name_pattern(entry_of(layout, *ranks.front())) +
                     to_string(entry_of(layout, *ranks.front()).placed.shape());
  for (const Misplacement* m : ranks) {
    text += fmt::format("\n{} {} {} {} {}", m->rank, m->holds, m->expected, m->looks_like,
                        m->found.ambiguous_lines);
  }
  return text;
}

/// File tensors about which the same is told, and what it is.
struct Group {
  std::vector<std::int64_t> entries;
  std::vector<const Misplacement*> ranks;  // of the first
};

std::vector<Group> groups_of(const ExplainedShards& explained) {
  std::map<std::int64_t, std::vector<const Misplacement*>> by_entry;
  for (const Misplacement& m : explained.explanation.misplaced) by_entry[m.entry].push_back(&m);
  std::vector<Group> groups;
  std::map<std::string, std::size_t> known;
  for (const auto& [entry, ranks] : by_entry) {
    const auto [found, is_new] = known.try_emplace(told_of(explained.layout, ranks), groups.size());
    if (is_new) groups.push_back({{}, ranks});
    groups[found->second].entries.push_back(entry);
  }
  return groups;
}

void print_group(const Layout& layout, const Group& group) {
  const LayoutEntry& entry = entry_of(layout, *group.ranks.front());
  print_line(fmt::format("  {} {}", paint(Tone::strong, printable(folded_name(layout, group.entries))),
                         to_string(entry.placed.shape())));
  for (std::size_t i = 0; i < std::min(group.ranks.size(), kMaxRanks); ++i) {
    std::string sentence = sentence_of(layout, *group.ranks[i]);
    // The title names the tensor.
    if (const std::size_t at = sentence.find(" of " + entry.name + " holds"); at != std::string::npos)
      sentence.erase(at, 4 + entry.name.size());
    print_line("    " + printable(sentence));
  }
  if (group.ranks.size() > kMaxRanks)
    print_line(fmt::format("    and {} more ranks", group.ranks.size() - kMaxRanks));
  print(origin_map(layout, group.ranks));
}

void print_causes(const Explanation& explanation) {
  if (explanation.causes.empty()) {
    print_section("No known fault", "alone or after another leaves exactly these bytes");
    print_line(fmt::format(
        "  {} and {} tried{}", format_noun(explanation.faults_tried, "form of a fault", "forms of faults"),
        format_noun(explanation.pairs_tried, "composition"),
        explanation.pairs_left_out == 0
            ? ""
            : fmt::format(", {} left out", format_noun(explanation.pairs_left_out, "composition"))));
    if (explanation.nearest)
      print_line(fmt::format("  nearest: {} explains {} of {}", explanation.nearest->fault.text(),
                             explanation.nearest->places,
                             format_noun(std::ssize(explanation.misplaced), "misplaced shard")));
    return;
  }
  print_section("Known faults", "each leaves exactly these bytes");
  for (std::size_t i = 0; i < std::min(explanation.causes.size(), kMaxCauses); ++i) {
    const KnownCause& cause = explanation.causes[i];
    print_line(fmt::format("  {}{}", paint(Tone::bad, cause.text()),
                           cause.source_matters ? " with a source " + to_string(cause.source) : ""));
    for (const FaultChoice& choice : cause.faults) print_line(fmt::format("    {}", choice.fault->claim));
  }
  if (explanation.causes.size() > kMaxCauses)
    print_line(fmt::format("  and {} more", explanation.causes.size() - kMaxCauses));
}

ordered_json first_of(const auto& numbers, std::size_t count) {
  return std::vector<std::int64_t>(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count));
}

ordered_json box_json(const Layout& layout, const Misplacement& m, const OriginBox& box) {
  const std::size_t dims = entry_of(layout, m).placed.shape().size();
  static constexpr std::array kKinds = {"element", "zero", "unknown"};
  ordered_json json = {{"kind", kKinds[static_cast<std::size_t>(box.kind)]},
                       {"local", first_of(box.local, dims)},
                       {"size", first_of(box.size, dims)}};
  if (box.kind != OriginBox::Kind::element) return json;
  const LayoutEntry& origin = layout.entries[static_cast<std::size_t>(box.entry)];
  json["parameter"] = origin.name;
  json["origin"] = first_of(box.origin, origin.placed.shape().size());
  json["step"] = first_of(box.step, dims);
  return json;
}

ordered_json misplacement_json(const Layout& layout, const Misplacement& m) {
  ordered_json boxes = ordered_json::array();
  const std::size_t shown = std::min(m.found.boxes.size(), kMaxBoxes);
  for (std::size_t i = 0; i < shown; ++i) boxes.push_back(box_json(layout, m, m.found.boxes[i]));
  const LayoutEntry& entry = entry_of(layout, m);
  return {{"parameter", entry.name},
          {"rank", m.rank},
          {"shape", entry.placed.local_shape(m.rank)},
          {"symptom", to_string(m.symptom)},
          {"holds", m.holds},
          {"expected", m.expected},
          {"looks_like", m.looks_like},
          {"sentence", sentence_of(layout, m)},
          {"ambiguous_lines", m.found.ambiguous_lines},
          {"boxes", std::move(boxes)},
          {"boxes_left_out",
           m.found.boxes_left_out + std::ssize(m.found.boxes) - static_cast<std::int64_t>(shown)}};
}

ordered_json cause_json(const KnownCause& cause) {
  ordered_json faults = ordered_json::array();
  for (const FaultChoice& choice : cause.faults) {
    faults.push_back({{"fault", choice.text()},
                      {"family", std::string(1, choice.fault->family)},
                      {"level", to_string(choice.fault->level)},
                      {"claim", choice.fault->claim}});
  }
  return {{"text", cause.text()},
          {"faults", std::move(faults)},
          {"any_order", cause.any_order},
          {"source", cause.source_matters ? ordered_json(to_string(cause.source)) : ordered_json(nullptr)}};
}

}  // namespace

void print_explanation(const ExplainedShards& explained) {
  const Explanation& explanation = explained.explanation;
  if (explanation.misplaced.empty()) return;
  print_section("Misplaced", fmt::format("{} of {}", explanation.misplaced.size(),
                                         format_noun(explanation.places, "shard")));
  const std::vector<Group> groups = groups_of(explained);
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxParameters); ++i) {
    if (i > 0) print_line();
    print_group(explained.layout, groups[i]);
  }
  if (groups.size() > kMaxParameters) {
    std::size_t left = 0;
    for (std::size_t i = kMaxParameters; i < groups.size(); ++i) left += groups[i].entries.size();
    print_line(fmt::format("\n  and {} more parameters; --report=json:FILE lists all", left));
  }
  print_causes(explanation);
}

std::string explanation_json(const ExplainRequest& request, const ExplainedShards& explained,
                             const std::vector<std::string>& arguments, int exit_code) {
  const Explanation& explanation = explained.explanation;
  ordered_json misplaced = ordered_json::array(), causes = ordered_json::array();
  for (const Misplacement& m : explanation.misplaced)
    misplaced.push_back(misplacement_json(explained.layout, m));
  for (const KnownCause& cause : explanation.causes) causes.push_back(cause_json(cause));
  ordered_json nearest = nullptr;
  if (explanation.nearest)
    nearest = {{"fault", explanation.nearest->fault.text()}, {"places", explanation.nearest->places}};
  const ordered_json report = {
      {"format", kReportFormat},
      {"version", SHARDCHECK_VERSION},
      {"commit", build_commit()},
      {"command", "explain"},
      {"arguments", arguments},
      {"shards", request.folder.string()},
      {"source", request.source ? ordered_json(request.source->string()) : ordered_json(nullptr)},
      {"layout", to_string(explained.layout.name)},
      {"geometry", to_string(explained.layout.geometry)},
      {"places", explanation.places},
      {"misplaced", std::move(misplaced)},
      {"causes", std::move(causes)},
      {"nearest", std::move(nearest)},
      {"faults_tried", explanation.faults_tried},
      {"compositions_tried", explanation.pairs_tried},
      {"compositions_left_out", explanation.pairs_left_out},
      {"verdict", exit_code == 0 ? "passed" : "failed"},
      {"exit_code", exit_code}};
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace shardcheck
