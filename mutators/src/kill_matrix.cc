#include "shardcheck/mutators/kill_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "case_judge.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/mutators/case_search.h"
#include "shardcheck/mutators/counted_work.h"

namespace shardcheck {
namespace {

/// The oracle of a cell or row, or the law in its place.
template <typename Judged>
std::string judge_of(const Judged& judged) {
  return judged.law.empty() ? std::string(to_string(judged.oracle)) : judged.law;
}

/// Faults that share one right run of a case at most.
constexpr std::size_t kFaultsPerItem = 64;

/// Whether an oracle that has something to say about the fault can judge the case: bytes anywhere, logits
/// where a forward pass runs.
bool has_a_judge(const Fault& fault, const Case& c) {
  return fault.effective != nullptr || fault.expects(Oracle::layout) ||
         has_running_consumer(c.target, c.geometry);
}

Suits suits(const FaultChoice& choice, const Case& judged) {
  if (choice.fault->why_inapplicable(judged, choice.argument)) return Suits::no;
  if (!has_a_judge(*choice.fault, judged)) return Suits::no;
  return why_equivalent(choice, judged) ? Suits::as_witness : Suits::yes;
}

/// A case that every fault is tried on is cut into items, so that all threads have work to the end.
void add_work(const Case& c, std::int64_t number, std::span<const FaultChoice> choices,
              std::vector<KillWork>& work) {
  while (!choices.empty()) {
    const auto some = choices.first(std::min(choices.size(), kFaultsPerItem));
    work.push_back({c, number, {some.begin(), some.end()}});
    work.back().value.fault.clear();
    choices = choices.subspan(some.size());
  }
}

UnjudgedFault short_of(const FaultChoice& choice, std::int64_t found, const KillOptions& options) {
  return {choice.text(),
          fmt::format("acts on {} random cases, {} were asked for", found, options.random_cases)};
}

/// What is to be judged, and the choices that act on fewer random cases than were asked for.
struct MatrixPlan {
  std::vector<KillWork> work;
  std::vector<UnjudgedFault> short_of_cases;
};

void add_random_work(const KillOptions& options, const std::vector<FaultChoice>& choices, MatrixPlan& plan) {
  FoundCases random = find_cases(choices, {options.random_cases, options.draw, suits});
  for (SharedCase& shared : random.cases) {
    const auto number = std::ssize(options.cases) + static_cast<std::int64_t>(shared.index) + 1;
    plan.work.push_back({std::move(shared.value), number, std::move(shared.faults)});
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (random.found[i] == options.random_cases) continue;
    plan.short_of_cases.push_back(
        {choices[i].text(),
         fmt::format("acts on {} random cases, {} were asked for", random.found[i], options.random_cases)});
  }
}

MatrixPlan plan_work(const KillOptions& options, const std::vector<FaultChoice>& choices) {
  MatrixPlan plan;
  for (std::size_t i = 0; i < options.cases.size(); ++i)
    add_work(options.cases[i], static_cast<std::int64_t>(i) + 1, choices, plan.work);
  if (options.random_cases > 0 && options.draw) add_random_work(options, choices, plan);
  return plan;
}

/// Judges every item, on `jobs` threads; results in the order of the work whatever the threads did.
std::vector<JudgedWork> judge_all(const KillOptions& options, const std::vector<KillWork>& work) {
  std::vector<JudgedWork> results(work.size());
  do_counted(work.size(), options.jobs, options.progress, "cases",
             [&](std::size_t i) { results[i] = judge_work(work[i], options); });
  return results;
}

/// Cells of the faults that no oracle sees, in their order; those short of cases go to the plan's list.
void judge_by_laws(const KillOptions& options, const std::vector<FaultChoice>& choices, MatrixPlan& plan,
                   KillReport& report) {
  std::vector<LawCells> judged(choices.size());
  do_counted(choices.size(), options.jobs, options.progress, "faults of laws",
             [&](std::size_t i) { judged[i] = options.by_law(choices[i], options.random_cases); });
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::int64_t found = std::ssize(judged[i].cells);
    std::ranges::move(judged[i].cells, std::back_inserter(report.cells));
    std::ranges::move(judged[i].baseline_failures, std::back_inserter(report.baseline_failures));
    if (found < options.random_cases) plan.short_of_cases.push_back(short_of(choices[i], found, options));
  }
}

bool is_judged(CellStatus status) {
  return status != CellStatus::not_applicable && status != CellStatus::equivalent &&
         status != CellStatus::relabelled;
}

void add_kill(KillRow& row, const KillCell& cell) {
  const bool first = row.cases_to_first_kill == 0;
  if (first || cell.case_number < row.cases_to_first_kill) {
    row.cases_to_first_kill = cell.case_number;
    row.first_killing_case = cell.case_line;
  }
  row.weakest_deviation = first ? cell.deviation : std::min(row.weakest_deviation, cell.deviation);
  row.strongest_deviation = std::max(row.strongest_deviation, cell.deviation);
  if (!(cell.threshold > 0.0)) return;
  row.weakest_margin =
      row.strongest_margin == 0.0 ? cell.margin() : std::min(row.weakest_margin, cell.margin());
  row.strongest_margin = std::max(row.strongest_margin, cell.margin());
}

/// The judges of a choice that the options ask.
std::vector<KillRow> empty_rows(const FaultChoice& choice, const KillOptions& options) {
  const Fault& fault = *choice.fault;
  KillRow row;
  row.fault = choice.text();
  row.family = fault.family;
  row.relabel_control = fault.is_relabel_control();
  std::vector<KillRow> rows;
  if (!fault.law.empty()) {
    row.law = fault.law;
    return {row};
  }
  for (const Oracle oracle : options.oracles) {
    if (!is_asked(options, fault, oracle)) continue;
    row.oracle = oracle;
    row.expected = fault.expects(oracle);
    rows.push_back(row);
  }
  return rows;
}

std::vector<KillRow> rows_of(const std::vector<FaultChoice>& choices, const KillOptions& options,
                             const std::vector<KillCell>& cells) {
  std::vector<KillRow> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> place;
  for (const FaultChoice& choice : choices) {
    for (KillRow& row : empty_rows(choice, options)) {
      if (place.try_emplace({row.fault, row.judge()}, rows.size()).second) rows.push_back(std::move(row));
    }
  }
  for (const KillCell& cell : cells) {
    KillRow& row = rows.at(place.at({cell.fault, cell.judge()}));
    if (cell.status == CellStatus::killed) add_kill(row, cell);
    if (cell.status == CellStatus::relabelled && row.witness.empty()) row.witness = cell.message;
    ++row.counts[cell.status];
  }
  return rows;
}

/// A cell that says whether an oracle detects a fault it has to detect.
bool is_evidence(const KillCell& cell) { return cell.expected && is_judged(cell.status); }

bool is_control(const KillRow& row) { return row.family == 'Z'; }

/// A relabelling that was taken for a fault, or whose witness is wrong.
bool is_false_alarm(const KillCell& cell) {
  return cell.relabel_control && (cell.status == CellStatus::killed || cell.status == CellStatus::survived ||
                                  cell.status == CellStatus::timeout || cell.status == CellStatus::error);
}

std::string why_flagged(const KillCell& cell) {
  if (!cell.message.empty()) return cell.message;
  return cell.status == CellStatus::killed ? "taken for a fault" : "bytes or logits contradict the witness";
}

/// A cell of a relabelling that says whether it is one.
bool says_what_it_is(const KillCell& cell) {
  return is_false_alarm(cell) || (cell.relabel_control && (cell.status == CellStatus::relabelled ||
                                                           cell.status == CellStatus::equivalent));
}

/// The commonest reason why a fault's cells under one oracle say nothing: "cannot act on 3 of 5 cases (...)".
std::string why_inert(const std::vector<KillCell>& cells, const KillRow& row) {
  std::map<std::pair<CellStatus, std::string>, std::int64_t> reasons;
  std::int64_t cases = 0;
  for (const KillCell& cell : cells) {
    if (cell.fault != row.fault || cell.judge() != row.judge()) continue;
    ++cases;
    ++reasons[{cell.status, cell.message}];
  }
  if (reasons.empty()) return "no case was judged";
  const auto commonest =
      std::ranges::max_element(reasons, {}, [](const auto& entry) { return entry.second; });
  const auto& [status, message] = commonest->first;
  return fmt::format("{} on {} of {} cases ({})",
                     status == CellStatus::equivalent ? "changes nothing" : "cannot act", commonest->second,
                     cases, message);
}

std::string why_unjudged(const KillReport& report, const std::string& fault) {
  std::vector<std::string> blind;
  for (const KillRow& row : report.rows) {
    if (row.fault != fault) continue;
    if (row.expected || row.relabel_control) return why_inert(report.cells, row);
    blind.push_back(row.judge());
  }
  return fmt::format("{} need not see it", fmt::join(blind, ", "));
}

std::vector<UnjudgedFault> without_evidence(const KillReport& report,
                                            const std::vector<UnjudgedFault>& short_of_cases) {
  std::set<std::string> known;  // judged, or already missing
  for (const KillCell& cell : report.cells) {
    if (is_evidence(cell) || says_what_it_is(cell)) known.insert(cell.fault);
  }
  std::vector<UnjudgedFault> missing;
  for (const KillRow& row : report.rows) {
    if (known.insert(row.fault).second) missing.push_back({row.fault, why_unjudged(report, row.fault)});
  }
  for (const UnjudgedFault& choice : short_of_cases) {
    if (std::ranges::find(missing, choice.fault, &UnjudgedFault::fault) == missing.end())
      missing.push_back(choice);
  }
  return missing;
}

std::map<FaultFamily, double> scores_of(const std::vector<KillCell>& cells) {
  std::map<FaultFamily, std::pair<std::int64_t, std::int64_t>> tallies;  // killed, judged
  for (const KillCell& cell : cells) {
    if (!is_evidence(cell)) continue;
    auto& [killed, judged] = tallies[cell.family];
    killed += cell.status == CellStatus::killed ? 1 : 0;
    ++judged;
  }
  std::map<FaultFamily, double> scores;
  for (const auto& [family, tally] : tallies) {
    if (family == 'Z') continue;  // the control proves the laws, not the detection of a class of bugs
    const auto [killed, judged] = tally;
    scores[family] = static_cast<double>(killed) / static_cast<double>(judged);
  }
  return scores;
}

}  // namespace

CellStatus status_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::passed:
      return CellStatus::survived;
    case Verdict::failed:
      return CellStatus::killed;
    case Verdict::vacuous:
    case Verdict::mistrusted:
      return CellStatus::vacuous;
    case Verdict::skipped:
      return CellStatus::not_applicable;
    case Verdict::timeout:
      return CellStatus::timeout;
    case Verdict::error:
      return CellStatus::error;
  }
  return CellStatus::error;
}

std::string KillCell::judge() const { return judge_of(*this); }
std::string KillRow::judge() const { return judge_of(*this); }

std::string_view to_string(CellStatus status) noexcept {
  switch (status) {
    case CellStatus::killed:
      return "killed";
    case CellStatus::survived:
      return "survived";
    case CellStatus::equivalent:
      return "equivalent";
    case CellStatus::relabelled:
      return "relabelled";
    case CellStatus::vacuous:
      return "vacuous";
    case CellStatus::not_applicable:
      return "not applicable";
    case CellStatus::timeout:
      return "timeout";
    case CellStatus::error:
      return "error";
  }
  return "unknown";
}

double KillReport::score() const {
  double worst = score_by_family.empty() ? 0.0 : 1.0;
  for (const auto& [family, score] : score_by_family) worst = std::min(worst, score);
  return worst;
}

bool KillReport::only_controls() const { return !rows.empty() && std::ranges::all_of(rows, is_control); }

double KillReport::median_cases_to_first_kill() const {
  std::map<std::string, std::int64_t> fewest;
  for (const KillRow& row : rows) {
    if (row.cases_to_first_kill == 0 || row.relabel_control) continue;
    std::int64_t& cases = fewest.try_emplace(row.fault, row.cases_to_first_kill).first->second;
    cases = std::min(cases, row.cases_to_first_kill);
  }
  std::vector<std::int64_t> sorted;
  for (const auto& [fault, cases] : fewest) sorted.push_back(cases);
  if (sorted.empty()) return 0.0;
  std::ranges::sort(sorted);
  const std::size_t upper = sorted.size() / 2, lower = (sorted.size() - 1) / 2;
  return static_cast<double>(sorted[lower] + sorted[upper]) / 2.0;
}

Verdict KillReport::verdict(double minimum_score) const {
  const auto killed = [](const KillCell& cell) { return cell.status == CellStatus::killed; };
  const auto shows = [&](const KillCell& cell) {
    return cell.relabel_control ? says_what_it_is(cell) : killed(cell);
  };
  const auto control_missed = [&](const KillCell& cell) {
    return cell.family == 'Z' && is_evidence(cell) && !killed(cell);
  };
  const bool scored_low = !score_by_family.empty() && score() < minimum_score;
  const bool anything_shown = std::ranges::any_of(cells, shows);
  const auto undecided = [](const KillCell& cell) {
    return cell.relabel_control && cell.status == CellStatus::vacuous;
  };
  if (!baseline_failures.empty() || !false_alarms.empty() || scored_low ||
      std::ranges::any_of(cells, control_missed) ||
      (!anything_shown && std::ranges::any_of(cells, is_evidence)))
    return Verdict::failed;
  const bool is_known = without_evidence.empty() && std::ranges::none_of(cells, undecided);
  return is_known && anything_shown ? Verdict::passed : Verdict::vacuous;
}

KillReport run_kill_matrix(const KillOptions& options) {
  auto choices = by_family(options.faults.empty() ? every_choice() : options.faults);
  KillReport report;
  for (const FaultChoice& choice : choices) {
    if (!choice.fault->law.empty()) report.judged_by_law.emplace_back(choice.text(), choice.fault->law);
  }
  const auto is_of_a_law = [](const FaultChoice& choice) { return !choice.fault->law.empty(); };
  std::vector<FaultChoice> by_law;
  std::ranges::copy_if(choices, std::back_inserter(by_law), is_of_a_law);
  std::erase_if(choices, is_of_a_law);
  MatrixPlan plan = plan_work(options, choices);
  for (JudgedWork& judged : judge_all(options, plan.work)) {
    const bool is_new =
        report.baseline_failures.empty() || report.baseline_failures.back() != judged.baseline_failure;
    if (!judged.baseline_failure.empty() && is_new)
      report.baseline_failures.push_back(std::move(judged.baseline_failure));
    std::ranges::move(judged.cells, std::back_inserter(report.cells));
  }
  if (options.by_law && options.random_cases > 0) {
    judge_by_laws(options, by_law, plan, report);
    choices.insert(choices.end(), by_law.begin(), by_law.end());
    choices = by_family(std::move(choices));
  }
  report.rows = rows_of(choices, options, report.cells);
  report.score_by_family = scores_of(report.cells);
  report.without_evidence = without_evidence(report, plan.short_of_cases);
  for (const KillCell& cell : report.cells) {
    if (is_false_alarm(cell))
      report.false_alarms.push_back(fmt::format("{} is flagged under {}: {} ({})", cell.fault, cell.judge(),
                                                cell.case_line, why_flagged(cell)));
    if (!cell.expected || cell.status != CellStatus::survived) continue;
    report.survivors.push_back(
        fmt::format("{} survives under {}: {}", cell.fault, cell.judge(), cell.case_line));
  }
  return report;
}

std::vector<Case> recorded_kill_cases() {
  std::vector<Case> cases;
  for (const Geometry& geometry : {toy(), toy_kv4()}) {
    for (const int degree : supported_degrees(LayoutTable::built_in("seed"), geometry, {2, 4})) {
      Case c;
      c.law = "sharded_equals_reference";
      c.geometry = geometry;
      c.target.axes = {{"tp", degree}};
      c.weights = WeightStyle::recorded;
      c.batch = 2;
      c.length = 16;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace shardcheck
