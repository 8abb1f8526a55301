// The kill matrix: every fault against every case and oracle, green baseline first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

enum class CellStatus : std::uint8_t {
  killed,
  survived,
  equivalent,
  vacuous,
  not_applicable,
  timeout,
  error
};
std::string_view to_string(CellStatus status) noexcept;

/// One fault on one case under one oracle.
struct KillCell {
  std::string fault;  // with its argument
  FaultFamily family = 'F';
  Oracle oracle = Oracle::native;
  bool expected = true;   // the fault declares that this oracle detects it
  std::string case_line;  // without the fault
  std::string config;     // "kv2", "kv4" or "random"
  CellStatus status = CellStatus::survived;
  double deviation = 0.0;  // max |logit difference| (native, tree)
  double threshold = 0.0;
  std::string message;  // why, for everything but a kill
  double margin() const { return threshold > 0 ? deviation / threshold : 0.0; }
};

/// All cells of one fault under one oracle.
struct KillRow {
  std::string fault;
  FaultFamily family = 'F';
  Oracle oracle = Oracle::native;
  bool expected = true;
  std::map<CellStatus, std::int64_t> counts;
  double weakest_margin = 0.0, strongest_margin = 0.0;  // over killed cells with a threshold
  double weakest_deviation = 0.0, strongest_deviation = 0.0;
  std::int64_t cases_to_first_kill = 0;  // 0: never
  std::string first_killing_case;
};

struct KillOptions {
  std::vector<FaultChoice> faults;  // empty: all, with every legal argument
  std::vector<Oracle> oracles = {Oracle::layout, Oracle::tree, Oracle::native};
  std::vector<Case> cases;                        // cases every fault is tried on
  std::int64_t random_cases = 0;                  // further cases per fault where it is applicable
  std::function<Case(std::uint64_t index)> draw;  // random case number i
  double case_timeout_seconds = 60.0;
  int jobs = 1;
  ProgressSink progress;
};

/// A chosen fault of which nothing is known: no oracle that has to detect it judged a case it acts on.
struct UnjudgedFault {
  std::string fault;
  std::string reason;  // "cannot act on 5 of 5 cases (one rank: ...)"
};

struct KillReport {
  std::vector<KillCell> cells;
  std::vector<KillRow> rows;  // by family, fault, oracle
  std::map<FaultFamily, double>
      score_by_family;  // killed / (applicable - equivalent), of families where an expected cell was judged
  std::vector<std::string>
      baseline_failures;               // cases that fail without any fault: nothing was judged on them
  std::vector<std::string> survivors;  // "FAULT survives under ORACLE: CASE LINE"
  std::vector<UnjudgedFault> without_evidence;  // in the order of the rows; the control only when alone
  /// Chosen faults that no oracle can see, each with the law that detects it: they have no cells here.
  std::vector<std::pair<std::string, std::string>> judged_by_law;
  double score() const;        // worst family; 0 when no family has a score
  bool only_controls() const;  // faults of family Z alone: there is nothing to score
  /// failed: a baseline failed, a control was missed, a family scores below the minimum, or cells were judged
  /// and none was killed. Else vacuous (inconclusive) while a fault has no evidence or nothing was judged.
  Verdict verdict(double minimum_score = 1.0) const;
  bool passed(double minimum_score = 1.0) const { return verdict(minimum_score) == Verdict::passed; }
};

/// A case is judged without the fault first; a fault counts as killed only where that passes. A row's status
/// for a case is killed when the oracle fails; equivalent when the fault says so, every oracle agrees
/// and, whichever oracles were chosen, its shards (plan, value) or its tree logits (else) are bit for bit
/// right.
KillReport run_kill_matrix(const KillOptions& options);

/// The recorded configurations at every ordered pair used for the seed rows: source tp1, target t >= 2,
/// recorded weights seed 0, tokens 2 x 16.
std::vector<Case> recorded_kill_cases();

}  // namespace shardcheck
