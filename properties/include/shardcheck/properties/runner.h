// The one runner: draws cases through RapidCheck, runs laws, shrinks failures, checks health. Serves
// GoogleTest, the program and (later) fuzzers, MPI and users' subjects.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/properties/law.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

struct RunOptions {
  std::uint64_t seed = 0;
  std::optional<std::int64_t> cases;     // replaces the law's minimum; below 200 also drops the share checks
  double multiplier = 1.0;               // of the law's minimum (full suite: 10)
  std::optional<double> seconds;         // stop after this long; alone, run on past the minimum until then
  std::string fault;                     // injected into every drawn case
  std::optional<Arithmetic> arithmetic;  // forced on the cases of every law that speaks of it
  double shrink_seconds = 30.0;
  int shrink_steps = 500;
  double case_timeout_seconds = 30.0;  // measured after the case: no thread is killed; a failure stays one
  int jobs = 1;
  ProgressSink progress;  // a failing case is a notice before it is shrunk, the best so far a stage
  std::function<std::shared_ptr<Subject>(const Case&)> subject;  // empty: subject_of(case)
};

struct Failure {
  Case original, minimal;
  Outcome outcome;       // of the minimal case
  int shrink_steps = 0;  // cases tried
  std::vector<std::string>
      irrelevant;  // keys of the minimal case for which every other value tried fails too
  bool nondeterministic = false;
};

struct LawReport {
  std::string name, claim;
  std::int64_t cases = 0, passed = 0, failed = 0, vacuous = 0, mistrusted = 0, skipped = 0, timeouts = 0,
               errors = 0;
  double seconds = 0.0;
  std::map<std::string, std::int64_t> labels;
  double worst_deviation = 0.0, worst_share_of_threshold = 0.0;
  std::optional<Failure> failure;   // the first
  std::vector<std::string> health;  // failed health checks: label shares, too many undecided, too few cases
  /// failed: a case failed. error: an internal error. Verdict::vacuous stands for inconclusive.
  Verdict verdict = Verdict::passed;
};

/// Runs cases in index order until the budget ends or one fails; the report does not depend on `jobs`. Every
/// 20th case runs twice. Under a law that has to detect the fault, draws that it cannot act on are moved by
/// its `steer`. Inconclusive: fewer decided cases than the minimum, more than 10 % undecided, or a label
/// three standard deviations below its share. With a fault and without a subject, draws on which the fault
/// cannot act are skipped and made up for, at most 20 of them per case of the minimum; inconclusive when it
/// acted on none. The shares speak of all draws, and are not checked then.
LawReport run_law(const Law& law, const RunOptions& options);

/// Shrinks a failing case within the budget to one with the same verdict; calls `improved` with each better
/// case. A case that passes is returned as it is.
Failure shrink_failure(const Law& law, const Case& failing, const RunOptions& options,
                       const std::function<void(const Case&)>& improved = {});

/// What an outcome's difference holds, a name and a value a line, indented by four; empty when there is none.
std::string describe_difference(const Difference& difference);
/// The failure report in the house's order: claim, original line, minimal line with annotated fields, the
/// difference, the replay command (`program` is how the user called it), the text of a regression file.
std::string describe_failure(const Law& law, const Failure& failure, const std::string& program);
/// The regression file's text: header (law, verdict, why) and the minimal case line.
std::string regression_file(const Law& law, const Failure& failure);

/// Exit code of a set of reports: 1 failed, 4 error, 3 inconclusive, else 0.
int exit_code_of(const std::vector<LawReport>& reports);

}  // namespace shardcheck
