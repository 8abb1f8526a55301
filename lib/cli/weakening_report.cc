#include "weakening_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "exit_code.h"
#include "report_json.h"

namespace shardcheck {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kIntroduction =
    R"(# Why each check exists

Each check of ShardCheck has a weaker form that somebody relies on. Here an oracle is replaced by that form
and judges the same faults on the same cases: a fault *survives* where the oracle sees it and the weakened
one does not in any of up to {cases} cases, and is *seen less often* where it does in some. Right shards and
right logits pass every weakened check; it is no stricter anywhere. A weakening that let no fault survive
would be no loss, and `shardcheck weaken` would fail.

The figures are those of one run, of commit {commit}, which wrote this page:

```
{command}
```

)";

constexpr std::string_view kDetails =
    R"(## What each would let pass

`n of m` is how many of the cases in which the oracle sees the fault the weakened check still sees it in.

)";

std::vector<std::string> survivors_of(const WeakeningReport& report) {
  if (report.survivors() > 0 && report.survivors() == std::ssize(report.faults))
    return {fmt::format("every one of {} forms of faults", report.faults.size())};
  std::vector<std::string> names;
  for (const WeakenedFault& fault : report.faults) {
    if (fault.survives()) names.push_back(as_code(fault.fault));
  }
  return names;
}

std::vector<std::string> blunted_of(const WeakeningReport& report) {
  std::vector<std::string> names;
  for (const WeakenedFault& fault : report.faults) {
    if (!fault.survives() && fault.still_seen < fault.seen)
      names.push_back(fmt::format("{} {} of {}", as_code(fault.fault), fault.still_seen, fault.seen));
  }
  return names;
}

/// The case of the first survivor that only the oracle as it is sees.
std::string example_of(const WeakeningReport& report) {
  for (const WeakenedFault& fault : report.faults) {
    if (fault.survives()) return fault.example;
  }
  return "";
}

std::string list_of(const std::vector<std::string>& names) {
  return names.empty() ? "none" : join(names, ", ");
}

std::string section(const WeakeningReport& report) {
  const Weakening& weakening = *report.weakening;
  const std::string example = example_of(report);
  return fmt::format(
      "### {}\n\n{} In place of `{}`. Seen in: {}.\n\n*Survive*: {}.\n\n*Seen less often*: {}.\n\n{}",
      weakening.name, weakening.weakened, to_string(weakening.oracle), weakening.practice,
      list_of(survivors_of(report)), list_of(blunted_of(report)),
      example.empty() ? "" : fmt::format("```\n{}\n```\n\n", example));
}

ordered_json fault_json(const WeakenedFault& fault) {
  return {{"fault", fault.fault},    {"family", std::string(1, fault.family)}, {"cases", fault.cases},
          {"seen", fault.seen},      {"still_seen", fault.still_seen},         {"survives", fault.survives()},
          {"example", fault.example}};
}

ordered_json report_json(const WeakeningReport& report) {
  ordered_json faults = ordered_json::array();
  for (const WeakenedFault& fault : report.faults) faults.push_back(fault_json(fault));
  return {{"name", report.weakening->name},
          {"oracle", to_string(report.weakening->oracle)},
          {"weakened", report.weakening->weakened},
          {"practice", report.weakening->practice},
          {"faults", faults},
          {"survivors", report.survivors()},
          {"cases_without_a_fault", report.cases},
          {"false_alarms", report.false_alarms},
          {"problems", report.problems()},
          {"gaps", report.gaps()}};
}

}  // namespace

std::vector<std::string> WeakeningRun::problems() const {
  std::vector<std::string> all;
  for (const WeakeningReport& report : reports) std::ranges::move(report.problems(), std::back_inserter(all));
  return all;
}

std::vector<std::string> WeakeningRun::gaps() const {
  std::vector<std::string> all;
  for (const WeakeningReport& report : reports) std::ranges::move(report.gaps(), std::back_inserter(all));
  return all;
}

int WeakeningRun::exit_code() const {
  if (!problems().empty()) return kFailed;
  return gaps().empty() ? kPassed : kInconclusive;
}

TwoWayTable weakening_table(const WeakeningRun& run) {
  TwoWayTable table{{{"weakened check"},
                     {"in place of"},
                     {"what it looks at"},
                     {"faults seen", Align::right},
                     {"survive", Align::right},
                     {"seen less often", Align::right}},
                    {}};
  for (const WeakeningReport& report : run.reports)
    table.rows.push_back({as_code(report.weakening->name), std::string(to_string(report.weakening->oracle)),
                          std::string(report.weakening->weakened), std::to_string(report.faults.size()),
                          std::to_string(report.survivors()), std::to_string(blunted_of(report).size())});
  return table;
}

std::string weakening_page(const WeakeningRun& run) {
  std::string text = fmt::format(fmt::runtime(kIntroduction), fmt::arg("commit", run.commit),
                                 fmt::arg("command", run.command), fmt::arg("cases", run.cases));
  text += as_markdown(weakening_table(run));
  for (const std::string& problem : run.problems()) text += fmt::format("- **{}**\n", problem);
  text += kDetails;
  for (const WeakeningReport& report : run.reports) text += section(report);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string weakening_json(const WeakeningRun& run) {
  ordered_json reports = ordered_json::array();
  for (const WeakeningReport& report : run.reports) reports.push_back(report_json(report));
  const ordered_json document = {{"format", kReportFormat},
                                 {"command", "weaken"},
                                 {"version", SHARDCHECK_VERSION},
                                 {"commit", run.commit},
                                 {"seed", run.seed},
                                 {"cases", run.cases},
                                 {"weakenings", reports},
                                 {"exit_code", run.exit_code()}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace shardcheck
