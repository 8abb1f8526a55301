#include "kill_setup.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "exit_code.h"
#include "options.h"
#include "shardcheck/properties/law.h"
#include "shardcheck/properties/law_cells.h"
#include "terminal.h"
#include "text_report.h"

namespace shardcheck {
namespace {

bool matches(const std::string& glob, const std::string& text) {
  return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

KillOptions kill_options(std::uint64_t seed, std::int64_t random_cases, int jobs) {
  KillOptions options;
  options.cases = recorded_kill_cases();
  options.random_cases = random_cases;
  options.draw = [seed](std::uint64_t index) {
    Stream stream = Stream(seed, "kill matrix").child(std::to_string(index));
    return law_named("sharded_equals_reference").draw(stream);
  };
  options.by_law = [seed](const FaultChoice& choice, std::int64_t cases) {
    return judge_by_law(choice, seed, cases);
  };
  options.jobs = jobs;
  options.only_declared = true;
  return options;
}

void judge_under(KillOptions& options, std::vector<Oracle> oracles) {
  options.oracles = std::move(oracles);
  options.only_declared = false;
  options.by_law = nullptr;
}

std::vector<FaultChoice> faults_matching(const std::string& glob) {
  std::vector<FaultChoice> chosen;
  std::vector<std::string> names;
  for (const Fault* fault : all_faults()) {
    names.emplace_back(fault->name);
    for (FaultChoice& choice : choices_of(*fault))
      if (matches(glob, choice.text()) || matches(glob, std::string(fault->name)))
        chosen.push_back(std::move(choice));
  }
  if (chosen.empty()) refuse_unknown("fault", glob, names);
  return chosen;
}

std::vector<Oracle> parse_oracles(const std::string& text) {
  std::vector<Oracle> oracles;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto oracle = oracle_from(word);
    if (!oracle) refuse_unknown("oracle", word, {"layout", "exact", "tree", "native"});
    if (std::find(oracles.begin(), oracles.end(), *oracle) == oracles.end()) oracles.push_back(*oracle);
    begin = end + 1;
  }
  return oracles;
}

int exit_code_of(const KillReport& report, double minimum_score) {
  const Verdict verdict = report.verdict(minimum_score);
  return verdict == Verdict::passed ? kPassed : verdict == Verdict::failed ? kFailed : kInconclusive;
}

std::vector<std::string> not_scored(const KillReport& report) {
  std::vector<std::string> lines;
  for (const UnjudgedFault& unjudged : report.without_evidence)
    lines.push_back(fmt::format("not scored: {}: {}", unjudged.fault, unjudged.reason));
  for (const auto& [fault, law] : report.judged_by_law) {
    if (std::ranges::find(report.rows, fault, &KillRow::fault) == report.rows.end())
      lines.push_back(
          fmt::format("not in the matrix: {}: no oracle can see it, the law {} does", fault, law));
  }
  return lines;
}

std::string describe_first_kills(const KillReport& report) {
  const double median = report.median_cases_to_first_kill();
  return median > 0.0 ? fmt::format("first kill: median case {:g}", median) : "";
}

std::string describe_score(const KillReport& report) {
  if (!report.only_controls())
    return report.score_by_family.empty() ? "nothing scored"
                                          : format_share(report.score()) + " killed in the weakest family";
  std::int64_t seen = 0, asked = 0, right = 0;
  for (const KillRow& row : report.rows) {
    right += row.relabel_control ? recognised_in(row) : 0;
    if (!row.expected) continue;
    seen += count_of(row, CellStatus::killed);
    asked += applicable_of(row);
  }
  std::vector<std::string> parts;
  if (asked > 0)
    parts.push_back(fmt::format("detected in {} of {}", format_count(seen), format_noun(asked, "cell")));
  if (right > 0) parts.push_back(fmt::format("recognised as right in {}", format_noun(right, "cell")));
  return parts.empty() ? "nothing scored" : fmt::format("{}, and no fault was scored", join(parts, ", "));
}

std::string describe_faults(const KillReport& report) {
  if (report.only_controls()) return "the control alone";
  std::set<std::string> names, forms;
  for (const KillRow& row : report.rows) {
    if (row.relabel_control) continue;
    forms.insert(row.fault);
    names.insert(row.fault.substr(0, row.fault.find(':')));
  }
  const std::string text = format_noun(static_cast<std::int64_t>(names.size()), "fault");
  return names.size() == forms.size() ? text : fmt::format("{} in {} forms", text, forms.size());
}

}  // namespace shardcheck
