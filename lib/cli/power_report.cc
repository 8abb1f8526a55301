#include "power_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "exit_code.h"
#include "report_json.h"

namespace shardcheck {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kIntroduction =
    R"(# Detection power

How small a model, how small a deviation and how small a change the oracles still see. `layout` compares
bytes of the shards and sees all that there is to see in them; `exact` compares logits bit for bit; `native`
compares logits with a measured threshold, as engines run. All models are f32, so that every oracle judges
the same one.

The figures are those of one run, of commit {commit}, which wrote this page:

```
{command}
```

## Faults

*Parameters*: of the smallest model in which the oracle sees the fault, found by simplifying the first of at
most {cases} cases that shows it until no simpler one does; `-`: in none of them. In parentheses where the
fault does not promise to be seen; empty where no forward pass runs: then it is the model beside the
weights in question. A fault that one law alone can see has that law's figure.

*Amplitude*: the shards are W + a (W_faulty - W), rounded, with a = 2^-k. Given is the k at which the oracle
still sees the fault while it does not at k + 1, the least and the largest over the cases; 62 is the last
that was asked (zeros in place of weights or weights in place of zeros never round away). `ratio` is how
much smaller a deviation `exact` sees than `native`, at its worst case against native's best. Faults of the
forward pass and its collectives have no amplitude, nor have those that write NaN.

)";

constexpr std::string_view kPlaces =
    R"(## Hard places

The oracle's verdict on a mistake where it is hard to see. *Margin* is the deviation under `native` over its
threshold: below 1 it is not seen. A change of 1 ULP may round away before it reaches a logit, and then
`exact` lets it pass too.

)";

constexpr std::string_view kRoles =
    R"(## Parameters

One rank's part of one parameter is changed in {trials} random models of each family (RoPE, 32 tokens or
more, TP 2): one *element* by 1 ULP; one *row* becomes another row of the same part; the whole *shard*
becomes the next rank's, or is reversed where ranks hold the same. Rates with their 95 % Wilson intervals.
`layout` sees every one of these changes, also in rows of the embedding that no token looks up and in
experts that no token is routed to, which no logit depends on (*unused*). Under `exact` a whole shard is
always seen. Of a single ULP a part rounds away inside the layers; a router's bias acts only by the choice
of experts, which an ULP does not change.

)";

std::string parameters_cell(const SmallestModel* model) {
  if (model == nullptr || model->cases == 0) return "";
  const std::string text = model->detected ? format_count(model->parameters) : "-";
  return model->expected ? text : "(" + text + ")";
}

const SmallestModel* model_of(const FaultPower& power, std::string_view judge) {
  const auto found = std::ranges::find(power.models, judge, &SmallestModel::judge);
  return found == power.models.end() ? nullptr : &*found;
}

/// The law of a fault that no oracle judges.
const SmallestModel* law_model(const FaultPower& power) {
  const bool has_law = power.models.size() == 1 && power.models.front().judge != "layout";
  return has_law ? &power.models.front() : nullptr;
}

std::string amplitude_cell(const std::optional<Amplitude>& amplitude) {
  if (!amplitude) return "";
  const auto text = [](int power) { return power < 0 ? std::string("-") : std::to_string(power); };
  if (amplitude->least == amplitude->largest) return text(amplitude->least);
  return fmt::format("{} to {}", text(amplitude->least), text(amplitude->largest));
}

std::string ratio_cell(const FaultPower& power) {
  if (!power.exact || power.exact->least < 0) return "";
  if (power.native->largest < 0) return "not seen";
  return fmt::format("2^{}", power.exact->least - power.native->largest);
}

std::string rate_cell(const Rate& rate) {
  if (rate.trials == 0) return "";
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", rate.share(), rate.low(), rate.high());
}

std::string verdict_cell(const Outcome& outcome) {
  return outcome.verdict == Verdict::failed   ? "seen"
         : outcome.verdict == Verdict::passed ? "not seen"
                                              : std::string(to_string(outcome.verdict));
}

std::string margin_cell(const Outcome& native) {
  return native.threshold > 0.0 ? fmt::format("{:.3g}", native.deviation / native.threshold) : "";
}

std::string layout_cell(const RolePower& role) {
  Rate all;
  for (const Rate& rate : role.layout) {
    all.detected += rate.detected;
    all.trials += rate.trials;
  }
  return fmt::format("{:.3f}", all.share());
}

/// Half of the faults with both amplitudes lie at or above each figure.
std::string medians(const PowerReport& report) {
  std::vector<int> exact, native;
  for (const FaultPower& power : report.faults) {
    if (!power.exact || power.exact->least < 0 || power.native->least < 0) continue;
    exact.push_back(power.exact->least);
    native.push_back(power.native->least);
  }
  if (exact.empty()) return "";
  const auto median = [](std::vector<int> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  return fmt::format(
      "Over {} forms that both see whole, the median of the least k is {} under `exact` and {} under "
      "`native`.\n\n",
      exact.size(), median(exact), median(native));
}

std::string bullet_list(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += fmt::format("- {}\n", line);
  return text.empty() ? text : text + "\n";
}

ordered_json amplitude_json(const std::optional<Amplitude>& amplitude) {
  if (!amplitude) return nullptr;
  return {{"cases", amplitude->cases}, {"least", amplitude->least}, {"largest", amplitude->largest}};
}

ordered_json fault_json(const FaultPower& power) {
  ordered_json models = ordered_json::array();
  for (const SmallestModel& model : power.models)
    models.push_back({{"judge", model.judge},
                      {"expected", model.expected},
                      {"cases", model.cases},
                      {"detected", model.detected},
                      {"parameters", model.parameters},
                      {"minimal_case", model.minimal}});
  return {{"fault", power.fault},
          {"family", std::string(1, power.family)},
          {"smallest_models", models},
          {"amplitude",
           {{"layout", amplitude_json(power.layout)},
            {"exact", amplitude_json(power.exact)},
            {"native", amplitude_json(power.native)}}},
          {"problems", power.problems()}};
}

ordered_json outcome_json(const Outcome& outcome) {
  return {{"verdict", to_string(outcome.verdict)},
          {"deviation", outcome.deviation},
          {"threshold", outcome.threshold},
          {"message", outcome.message}};
}

ordered_json place_json(const HardPlace& place) {
  return {{"name", place.name},
          {"mistake", place.mistake},
          {"case", place.case_line},
          {"reaches_logits", place.reaches_logits},
          {"layout", outcome_json(place.layout)},
          {"exact", outcome_json(place.exact)},
          {"native", outcome_json(place.native)},
          {"problems", place.problems()}};
}

ordered_json rate_json(const Rate& rate) {
  return {{"detected", rate.detected}, {"trials", rate.trials}, {"low", rate.low()}, {"high", rate.high()}};
}

ordered_json role_json(const RolePower& role) {
  ordered_json json = {{"family", role.family}, {"role", role.role}, {"reaches_logits", role.reaches_logits}};
  for (const Change change : kChanges) {
    const auto i = static_cast<std::size_t>(change);
    json[std::string(to_string(change))] = {{"layout", rate_json(role.layout[i])},
                                            {"exact", rate_json(role.exact[i])}};
  }
  json["problems"] = role.problems();
  return json;
}

template <typename Rows, typename ToJson>
ordered_json list_json(const Rows& rows, const ToJson& to_json) {
  ordered_json list = ordered_json::array();
  for (const auto& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace

std::vector<std::string> PowerReport::problems() const {
  std::vector<std::string> all;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) std::ranges::move(row.problems(), std::back_inserter(all));
  };
  add(faults);
  add(places);
  add(roles);
  return all;
}

std::vector<std::string> PowerReport::gaps() const {
  std::vector<std::string> all;
  for (const FaultPower& power : faults) std::ranges::move(power.gaps(), std::back_inserter(all));
  for (const RolePower& role : roles) std::ranges::move(role.gaps(), std::back_inserter(all));
  if (faults.empty()) all.emplace_back("no fault was measured: controls are right and have no power");
  return all;
}

int PowerReport::exit_code() const {
  if (!problems().empty()) return kFailed;
  return gaps().empty() ? kPassed : kInconclusive;
}

TwoWayTable fault_table(const PowerReport& report) {
  TwoWayTable table{{{"fault"},
                     {"layout", Align::right},
                     {"exact", Align::right},
                     {"tree", Align::right},
                     {"native", Align::right},
                     {"law"},
                     {"k layout", Align::right},
                     {"k exact", Align::right},
                     {"k native", Align::right},
                     {"ratio", Align::right}},
                    {}};
  for (const FaultPower& power : report.faults) {
    std::vector<std::string> cells = {as_code(power.fault)};
    for (const char* judge : {"layout", "exact", "tree", "native"})
      cells.push_back(parameters_cell(model_of(power, judge)));
    const SmallestModel* law = law_model(power);
    cells.push_back(law == nullptr ? "" : fmt::format("{} {}", as_code(law->judge), parameters_cell(law)));
    for (const auto* amplitude : {&power.layout, &power.exact, &power.native})
      cells.push_back(amplitude_cell(*amplitude));
    cells.push_back(ratio_cell(power));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

TwoWayTable place_table(const PowerReport& report) {
  TwoWayTable table{{{"place"}, {"mistake"}, {"layout"}, {"exact"}, {"native"}, {"margin", Align::right}},
                    {}};
  for (const HardPlace& place : report.places)
    table.rows.push_back({std::string(place.name), std::string(place.mistake), verdict_cell(place.layout),
                          verdict_cell(place.exact), verdict_cell(place.native), margin_cell(place.native)});
  return table;
}

TwoWayTable role_table(const PowerReport& report) {
  TwoWayTable table{{{"family"},
                     {"role"},
                     {"layout", Align::right},
                     {"exact: element", Align::right},
                     {"exact: row", Align::right},
                     {"exact: shard", Align::right}},
                    {}};
  for (const RolePower& role : report.roles)
    table.rows.push_back({std::string(role.family), role.role, layout_cell(role), rate_cell(role.exact[0]),
                          rate_cell(role.exact[1]), rate_cell(role.exact[2])});
  return table;
}

std::string power_page(const PowerReport& report) {
  std::string text = fmt::format(fmt::runtime(kIntroduction), fmt::arg("commit", report.commit),
                                 fmt::arg("command", report.command), fmt::arg("cases", report.cases));
  text += as_markdown(fault_table(report)) + medians(report);
  text += kPlaces;
  text += as_markdown(place_table(report));
  text += fmt::format(fmt::runtime(kRoles), fmt::arg("trials", report.trials));
  text += as_markdown(role_table(report));
  text += bullet_list(report.problems()) + bullet_list(report.gaps());
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string power_json(const PowerReport& report) {
  const ordered_json document = {{"format", kReportFormat},
                                 {"command", "power"},
                                 {"version", SHARDCHECK_VERSION},
                                 {"commit", report.commit},
                                 {"seed", report.seed},
                                 {"cases", report.cases},
                                 {"trials", report.trials},
                                 {"faults", list_json(report.faults, fault_json)},
                                 {"hard_places", list_json(report.places, place_json)},
                                 {"roles", list_json(report.roles, role_json)},
                                 {"gaps", report.gaps()},
                                 {"exit_code", report.exit_code()}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace shardcheck
