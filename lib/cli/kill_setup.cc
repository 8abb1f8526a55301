#include "kill_setup.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "exit_code.h"
#include "options.h"
#include "shardcheck/properties/law.h"
#include "terminal.h"

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
  options.jobs = jobs;
  return options;
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
    if (!oracle || *oracle == Oracle::exact) refuse_unknown("oracle", word, {"layout", "tree", "native"});
    oracles.push_back(*oracle);
    begin = end + 1;
  }
  return oracles;
}

int exit_code_of(const KillReport& report, double minimum_score) {
  if (report.passed(minimum_score)) return kPassed;
  const bool scored_low = !report.score_by_family.empty() && report.score() < minimum_score;
  if (!report.baseline_failures.empty() || scored_low) return kFailed;
  return report.without_evidence.empty() && !report.score_by_family.empty() ? kFailed : kInconclusive;
}

std::vector<std::string> not_scored(const KillReport& report) {
  std::vector<std::string> lines;
  for (const std::string& fault : report.without_evidence) {
    std::vector<std::string> oracles;
    bool expected = false;
    for (const KillRow& row : report.rows) {
      if (row.fault != fault) continue;
      oracles.emplace_back(to_string(row.oracle));
      expected = expected || row.expected;
    }
    lines.push_back(expected ? fmt::format("not scored: no case was judged on which {} acts", fault)
                             : fmt::format("not scored: {} need not see {}", join(oracles, ", "), fault));
  }
  return lines;
}

std::string describe_faults(const KillReport& report) {
  std::set<std::string> names, forms;
  for (const KillRow& row : report.rows) {
    forms.insert(row.fault);
    names.insert(row.fault.substr(0, row.fault.find(':')));
  }
  const std::string text = format_noun(static_cast<std::int64_t>(names.size()), "fault");
  return names.size() == forms.size() ? text : fmt::format("{} in {} forms", text, forms.size());
}

}  // namespace shardcheck
