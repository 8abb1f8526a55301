#include "shardcheck/properties/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "case_gen.h"
#include "neighbours.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/mutators/workers.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Every 20th case runs twice: 5 %.
constexpr std::int64_t kRepeatEvery = 20;
/// Below this many requested cases a share says nothing.
constexpr std::int64_t kCasesForShares = 200;
/// Undecided cases allowed, as a share of all.
constexpr double kMaxUndecided = 0.1;

/// One case, run.
struct Trial {
  Case value;
  Outcome outcome;
  bool nondeterministic = false;
  bool inert = false;  // skipped because the injected fault cannot act on it
};

/// Draws per wanted case before a fault goes without.
constexpr std::int64_t kDrawsPerFaultCase = 20;

/// Whether the runner injects a fault: a caller's own subject is taken as it is.
bool injects_a_fault(const RunOptions& options) { return !options.fault.empty() && !options.subject; }

bool is_failure(Verdict verdict) { return verdict == Verdict::failed || verdict == Verdict::error; }

void report_progress(const RunOptions& options, const ProgressEvent& event) {
  if (options.progress) options.progress(event);
}

/// A subject of its own for every run, so that state kept in one cannot help the next.
Outcome run_once(const Law& law, const Case& c, const RunOptions& options) {
  const auto start = Clock::now();
  Outcome outcome;
  try {
    outcome = options.subject ? check_case(law, c, *options.subject(c)) : check_case(law, c);
  } catch (const std::exception& error) {
    return Outcome::of(Verdict::error, error.what());
  } catch (...) {
    return Outcome::of(Verdict::error, "making the subject threw what is no std::exception");
  }
  const double elapsed = seconds_since(start);
  // The thread is never killed: a slow case is measured, and its answer counts only when it is a failure.
  if (elapsed > options.case_timeout_seconds && !is_failure(outcome.verdict)) {
    outcome.verdict = Verdict::timeout;
    outcome.message =
        fmt::format("the case took {:.1f} s: allowed is {:.1f} s", elapsed, options.case_timeout_seconds);
  }
  return outcome;
}

/// Runs again; a different answer is a failure of its own kind.
bool repeats(const Law& law, const Case& c, const RunOptions& options, const Outcome& first) {
  const Outcome second = run_once(law, c, options);
  const bool timed_out = first.verdict == Verdict::timeout || second.verdict == Verdict::timeout;
  return timed_out || (first.verdict == second.verdict && first.digest == second.digest);
}

Outcome nondeterministic_outcome(const Outcome& first) {
  Outcome outcome = Outcome::fail("two runs of the case give different digests");
  outcome.labels = first.labels;
  return outcome;
}

/// The drawn case with the fault; under a law that has to detect the fault, moved toward where it acts.
/// Other laws draw what they need and keep it.
Case with_fault(const Law& law, Case drawn, std::uint64_t index, const RunOptions& options) {
  drawn.fault = options.fault;
  if (!injects_a_fault(options)) return drawn;
  const FaultChoice choice = parse_fault(options.fault);
  const std::vector<const Law*> laws = laws_against(*choice.fault);
  const bool must_detect = std::ranges::find(laws, &law) != laws.end();
  return must_detect ? suited_to(choice, std::move(drawn), index) : drawn;
}

Case draw_trial(const Law& law, std::uint64_t index, const RunOptions& options) {
  Case c = draw_case_at(law, options.seed, index);
  if (options.arithmetic && speaks_of(law, *options.arithmetic)) c.arithmetic = *options.arithmetic;
  return options.fault.empty() ? c : with_fault(law, std::move(c), index, options);
}

Trial run_trial(const Law& law, std::int64_t index, const RunOptions& options) {
  Trial trial;
  try {
    trial.value = draw_trial(law, static_cast<std::uint64_t>(index), options);
  } catch (const std::exception& error) {
    trial.value.law = law.name;
    trial.outcome = Outcome::of(Verdict::error, fmt::format("drawing case {}: {}", index, error.what()));
    return trial;
  }
  trial.outcome = run_once(law, trial.value, options);
  trial.inert = injects_a_fault(options) && trial.outcome.verdict == Verdict::skipped &&
                why_fault_is_inert(trial.value).has_value();
  if (index % kRepeatEvery == 0 && !repeats(law, trial.value, options, trial.outcome)) {
    trial.outcome = nondeterministic_outcome(trial.outcome);
    trial.nondeterministic = true;
  }
  return trial;
}

/// Trials [first, first + count), in index order whatever the number of threads.
std::vector<Trial> run_batch(const Law& law, std::int64_t first, std::int64_t count,
                             const RunOptions& options) {
  std::vector<Trial> trials(static_cast<std::size_t>(count));
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++)
      trials[static_cast<std::size_t>(i)] = run_trial(law, first + i, options);
  };
  run_on_workers(options.jobs, work);
  return trials;
}

std::int64_t& counter_of(LawReport& report, Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return report.passed;
    case Verdict::failed:
      return report.failed;
    case Verdict::vacuous:
      return report.vacuous;
    case Verdict::mistrusted:
      return report.mistrusted;
    case Verdict::skipped:
      return report.skipped;
    case Verdict::timeout:
      return report.timeouts;
    case Verdict::error:
      break;
  }
  return report.errors;
}

void count_trial(LawReport& report, const Trial& trial) {
  ++report.cases;
  ++counter_of(report, trial.outcome.verdict);
  for (const std::string& label : trial.outcome.labels) ++report.labels[label];
  if (trial.outcome.verdict != Verdict::passed) return;
  report.worst_deviation = std::max(report.worst_deviation, trial.outcome.deviation);
  if (trial.outcome.threshold > 0.0)
    report.worst_share_of_threshold =
        std::max(report.worst_share_of_threshold, trial.outcome.deviation / trial.outcome.threshold);
}

std::int64_t minimum_cases(const Law& law, const RunOptions& options) {
  if (options.cases) return std::max<std::int64_t>(1, *options.cases);
  return std::max<std::int64_t>(1, std::llround(law.smoke_cases * options.multiplier));
}

/// The stop rule. Cases: as many decided ones as the minimum, and at most a quarter more draws, and 20 times
/// as many on which an injected fault cannot act, so that a law that decides nothing ends too. Time alone
/// runs on past the minimum; time always ends the run.
class Budget {
 public:
  Budget(const Law& law, const RunOptions& options)
      : options_(options),
        minimum_(minimum_cases(law, options)),
        maximum_(minimum_ + minimum_ / 4 + 8),
        start_(Clock::now()) {}

  std::int64_t minimum() const { return minimum_; }

  /// `inert`: draws on which the injected fault cannot act. They are cheap, and have a limit of their own.
  bool cases_done(const LawReport& report, std::int64_t inert) const {
    if (options_.seconds && !options_.cases) return false;
    return report.passed + report.failed >= minimum_ || report.cases - inert >= maximum_ ||
           inert >= kDrawsPerFaultCase * minimum_;
  }

  bool time_is_up() const { return options_.seconds && seconds_since(start_) >= *options_.seconds; }

  /// Whichever of time and cases ends the run first.
  double share_done(const LawReport& report) const {
    const bool counts_cases = !options_.seconds || options_.cases;
    const auto decided = static_cast<double>(report.passed + report.failed);
    const double of_cases = counts_cases ? decided / static_cast<double>(minimum_) : 0.0;
    return std::min(1.0,
                    std::max(of_cases, options_.seconds ? seconds_since(start_) / *options_.seconds : 0.0));
  }

 private:
  const RunOptions& options_;
  std::int64_t minimum_, maximum_;
  Clock::time_point start_;
};

/// Runs until the budget ends or a case fails; returns that case.
std::optional<Trial> run_cases(const Law& law, const RunOptions& options, const Budget& budget,
                               LawReport& report, std::int64_t& inert) {
  const std::int64_t batch =
      options.jobs > 1 ? std::min(8 * static_cast<std::int64_t>(options.jobs), budget.minimum()) : 1;
  for (std::int64_t next = 0; !budget.cases_done(report, inert) && !budget.time_is_up(); next += batch) {
    // What a larger batch ran beyond the end is dropped: the report does not depend on the jobs.
    for (Trial& trial : run_batch(law, next, batch, options)) {
      if (budget.cases_done(report, inert)) break;
      count_trial(report, trial);
      inert += trial.inert ? 1 : 0;
      if (is_failure(trial.outcome.verdict)) return std::move(trial);
    }
    report_progress(options, {ProgressEvent::Kind::step, fmt::format("{}: {} cases", law.name, report.cases),
                              budget.share_done(report)});
  }
  return std::nullopt;
}

/// Three standard deviations of a binomial share below the minimum.
bool is_below_share(std::int64_t count, std::int64_t cases, double minimum) {
  const auto n = static_cast<double>(cases);
  return static_cast<double>(count) < n * minimum - 3.0 * std::sqrt(n * minimum * (1.0 - minimum));
}

/// `inert` of the skipped cases are those on which the injected fault cannot act: no failure to decide.
void check_health(const Law& law, const RunOptions& options, std::int64_t minimum, std::int64_t inert,
                  LawReport& report) {
  const std::int64_t decided = report.passed + report.failed;
  const std::int64_t acted = report.cases - inert;
  if (injects_a_fault(options) && acted == 0)
    report.health.push_back(fmt::format("the fault acted in 0 of {} cases", report.cases));
  if (decided < minimum)
    report.health.push_back(fmt::format("{} cases were decided: at least {} are needed", decided, minimum));
  const std::int64_t undecided =
      report.vacuous + report.mistrusted + report.skipped + report.timeouts - inert;
  if (static_cast<double>(undecided) > kMaxUndecided * static_cast<double>(acted))
    report.health.push_back(fmt::format(
        "{} of {} cases were not decided ({} vacuous, {} mistrusted, {} skipped, "
        "{} timeouts): at most 10 % may be",
        undecided, acted, report.vacuous, report.mistrusted, report.skipped - inert, report.timeouts));
  if (injects_a_fault(options)) return;
  if (options.cases && *options.cases < kCasesForShares) return;
  for (const LabelShare& share : law.shares) {
    const auto found = report.labels.find(std::string(share.label));
    const std::int64_t count = found == report.labels.end() ? 0 : found->second;
    if (is_below_share(count, report.cases, share.minimum))
      report.health.push_back(fmt::format("{} of {} cases are labelled '{}': at least {:.0f} % are needed",
                                          count, report.cases, share.label, 100.0 * share.minimum));
  }
}

Verdict verdict_of(const LawReport& report) {
  if (report.failed > 0) return Verdict::failed;
  if (report.errors > 0) return Verdict::error;
  return report.health.empty() ? Verdict::passed : Verdict::vacuous;
}

/// Searches a simpler case that fails in the same way, within the budget.
class Shrinker {
 public:
  Shrinker(const Law& law, const RunOptions& options, const std::function<void(const Case&)>& improved)
      : law_(law), options_(options), improved_(improved), start_(Clock::now()) {}

  /// `trial` has been run; a trial that does not fail is returned as it is.
  Failure shrink(const Trial& trial) {
    Failure failure;
    failure.original = failure.minimal = trial.value;
    failure.outcome = trial.outcome;
    failure.nondeterministic = nondeterministic_ = trial.nondeterministic;
    wanted_ = trial.outcome.verdict;
    if (wanted_ == Verdict::passed) return failure;
    failure.minimal = shrink_while_failing(
        trial.value, [&](const Case& c) { return improves(c, failure.outcome); }, [&] { return spent(); });
    failure.irrelevant = irrelevant_keys(failure.minimal);
    failure.shrink_steps = steps_;
    return failure;
  }

 private:
  bool spent() const {
    return steps_ >= options_.shrink_steps || seconds_since(start_) >= options_.shrink_seconds;
  }

  /// The outcome of a case that fails in the way that is wanted.
  std::optional<Outcome> failing_outcome(const Case& c) {
    ++steps_;
    Outcome outcome = run_once(law_, c, options_);
    if (!nondeterministic_)
      return outcome.verdict == wanted_ ? std::optional(std::move(outcome)) : std::nullopt;
    if (repeats(law_, c, options_, outcome)) return std::nullopt;
    return nondeterministic_outcome(outcome);
  }

  bool improves(const Case& c, Outcome& kept) {
    std::optional<Outcome> outcome = failing_outcome(c);
    if (!outcome) return false;
    kept = std::move(*outcome);
    if (improved_) improved_(c);
    return true;
  }

  /// Keys the minimal case spells although every other value that was tried, at least one, fails as well.
  std::vector<std::string> irrelevant_keys(const Case& minimal) {
    std::vector<std::string> keys;
    for (const CaseKey& key : case_keys()) {
      if (get_case_key(minimal, key.key) == key.default_value) continue;
      int tried = 0;
      bool all_fail = true;
      for (const Case& changed : neighbours(minimal, key.key)) {
        if (spent()) return keys;
        ++tried;
        all_fail = failing_outcome(changed).has_value();
        if (!all_fail) break;
      }
      if (tried > 0 && all_fail) keys.push_back(key.key);
    }
    return keys;
  }

  const Law& law_;
  const RunOptions& options_;
  const std::function<void(const Case&)>& improved_;
  Clock::time_point start_;
  Verdict wanted_ = Verdict::failed;
  bool nondeterministic_ = false;
  int steps_ = 0;
};

Failure shrink_trial(const Law& law, const Trial& trial, const RunOptions& options) {
  using Kind = ProgressEvent::Kind;
  // Before the first step: a run that is killed while it shrinks has still said what failed.
  report_progress(options, {Kind::notice, fmt::format("{}: {}", to_string(trial.outcome.verdict),
                                                      print_case(trial.value))});
  const auto report_stage = [&](std::string_view what, const Case& c) {
    report_progress(options, {Kind::stage, fmt::format("{}: {}", what, print_case(c))});
  };
  const std::function<void(const Case&)> improved = [&](const Case& c) { report_stage("smaller", c); };
  Failure failure = Shrinker(law, options, improved).shrink(trial);
  report_stage("minimal", failure.minimal);
  return failure;
}

}  // namespace

LawReport run_law(const Law& law, const RunOptions& options) {
  const auto start = Clock::now();
  LawReport report;
  report.name = law.name;
  report.claim = law.claim;
  const Budget budget(law, options);
  std::int64_t inert = 0;
  const std::optional<Trial> failing = run_cases(law, options, budget, report, inert);
  if (failing) {
    report.failure = shrink_trial(law, *failing, options);
  } else {
    check_health(law, options, budget.minimum(), inert, report);
  }
  report.verdict = verdict_of(report);
  report.seconds = seconds_since(start);
  return report;
}

Failure shrink_failure(const Law& law, const Case& failing, const RunOptions& options,
                       const std::function<void(const Case&)>& improved) {
  return Shrinker(law, options, improved).shrink({failing, run_once(law, failing, options)});
}

int exit_code_of(const std::vector<LawReport>& reports) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(reports.begin(), reports.end(),
                       [verdict](const LawReport& report) { return report.verdict == verdict; });
  };
  if (any(Verdict::failed)) return 1;
  if (any(Verdict::error)) return 4;
  return any(Verdict::vacuous) ? 3 : 0;
}

}  // namespace shardcheck
