#include "fault_classes_page.h"

#include <fmt/format.h>

#include <cctype>
#include <set>
#include <vector>

#include "options.h"
#include "shardcheck/mutators/public_reports.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

constexpr std::uint64_t kSampledCases = 200;

constexpr std::string_view kIntroduction =
    R"(# Fault classes

116 public reports of weights that were sharded, resharded, converted or synchronised wrongly fall into 39
classes. Each class has faults that reproduce its mechanism; `corpus/reports/` holds one case for each report,
which must be detected. This page is written by

```
{}
```

| class | what goes wrong | reports | faults |
|---|---|---|---|
)";

constexpr std::string_view kFaults = R"(
## The faults

*cannot act* and *changes nothing* are the reasons that the fault gives on {} random cases, numbers left out;
what changes nothing is no fault, and the kill matrix asks for equal bits before it believes so.

)";

/// Cell text: no column or line may end in it.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

/// Runs of digits as one n, so that reasons which differ in a number are one.
std::string without_numbers(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) shown += c;
    if (digit && (shown.empty() || shown.back() != 'n')) shown += 'n';
  }
  return shown;
}

std::string thread_link(const PublicReport& report) {
  const std::size_t end = report.thread.find_first_of(" #");
  const std::size_t hash = report.thread.find('#');
  const bool pull = report.thread.find("PR#") < hash + 1;
  std::size_t stop = hash + 1;
  while (stop < report.thread.size() && std::isdigit(static_cast<unsigned char>(report.thread[stop])) != 0)
    ++stop;
  return fmt::format("[{}](https://github.com/{}/{}/{})", cell(report.thread), report.thread.substr(0, end),
                     pull ? "pull" : "issues", report.thread.substr(hash + 1, stop - hash - 1));
}

std::string class_row(const FaultClass& one) {
  std::vector<std::string> ids, faults;
  for (const PublicReport& report : public_reports()) {
    if (report.fault_class == one.code) ids.push_back(report.id);
  }
  for (const Fault* fault : faults_of_class(one.code)) faults.push_back(fmt::format("`{}`", fault->name));
  return fmt::format("| {} | {} | {} | {} |\n", one.code, cell(one.what), fmt::join(ids, " "),
                     fmt::join(faults, " "));
}

struct Reasons {
  std::set<std::string> inapplicable, equivalent;
};

Reasons reasons_of(const FaultChoice& choice) {
  Reasons reasons;
  for (std::uint64_t index = 0; index < kSampledCases; ++index) {
    Stream stream = Stream(0, "fault classes").child(std::to_string(index));
    Case c = choice.fault->judged_on(law_named("sharded_equals_reference").draw(stream));
    if (choice.fault->steer != nullptr && index % 2 == 1) choice.fault->steer(c, stream);
    if (const auto reason = choice.fault->why_inapplicable(c, choice.argument)) {
      reasons.inapplicable.insert(without_numbers(*reason));
    } else if (choice.fault->equivalent != nullptr) {
      if (const auto witness = choice.fault->equivalent(c, choice.argument))
        reasons.equivalent.insert(without_numbers(*witness));
    }
  }
  return reasons;
}

std::string detected_by(const Fault& fault) {
  if (fault.is_relabel_control()) return "nobody, for it is right";
  std::vector<std::string_view> names;
  for (const Oracle oracle : {Oracle::layout, Oracle::exact, Oracle::tree, Oracle::native}) {
    if (fault.expects(oracle)) names.push_back(to_string(oracle));
  }
  if (!fault.law.empty()) names.push_back(fault.law);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string fault_section(const Fault& fault) {
  Reasons all;
  for (const FaultChoice& choice : choices_of(fault)) {
    Reasons one = reasons_of(choice);
    all.inapplicable.merge(one.inapplicable);
    all.equivalent.merge(one.equivalent);
  }
  std::string text =
      fmt::format("### {}\n\n{}\n\n- family {} ({}), acts on {}, detected by {}\n", fault.name, fault.claim,
                  fault.family, family_name(fault.family), to_string(fault.level), detected_by(fault));
  if (!fault.arguments.empty()) text += fmt::format("- forms: {}\n", fmt::join(fault.arguments, ", "));
  if (!all.inapplicable.empty()) text += fmt::format("- cannot act: {}\n", fmt::join(all.inapplicable, "; "));
  if (!all.equivalent.empty())
    text += fmt::format("- changes nothing: {}\n", fmt::join(all.equivalent, "; "));
  std::vector<std::string> origins;
  for (const std::string_view id : fault.reports) {
    const PublicReport* report = find_report(id);
    origins.push_back(report == nullptr ? std::string(id) : fmt::format("{} {}", id, thread_link(*report)));
  }
  return text + fmt::format("- from: {}\n\n", fmt::join(origins, ", "));
}

}  // namespace

std::string fault_classes_page(const std::string& command) {
  std::string page = fmt::format(fmt::runtime(kIntroduction), command);
  for (const FaultClass& one : fault_classes()) page += class_row(one);
  page += fmt::format(fmt::runtime(kFaults), kSampledCases);
  for (const Fault* fault : all_faults()) page += fault_section(*fault);
  while (page.ends_with("\n\n")) page.pop_back();
  return page;
}

}  // namespace shardcheck
