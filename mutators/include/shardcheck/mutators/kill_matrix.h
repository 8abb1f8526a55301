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
  relabelled,  // layout alone: other bytes, by the permutation that the witness names; the logits agree
  vacuous,
  not_applicable,
  timeout,
  error
};
std::string_view to_string(CellStatus status) noexcept;
/// What a verdict on the faulty subject makes of a cell whose baseline passed.
CellStatus status_of(Verdict verdict) noexcept;

/// One fault on one case under one oracle, or under the law that alone detects it.
struct KillCell {
  std::string fault;  // with its argument
  FaultFamily family = 'F';
  Oracle oracle = Oracle::native;
  bool expected = true;          // the fault declares that this oracle detects it
  bool relabel_control = false;  // right though it looks wrong: no oracle of logits may flag it
  std::string case_line;         // without the fault
  std::string config;            // "kv2", "kv4" or "random"
  std::int64_t case_number = 1;  // of the cases tried, also those the fault cannot act on
  CellStatus status = CellStatus::survived;
  double deviation = 0.0;  // max |logit difference| (native, tree)
  double threshold = 0.0;
  std::string message;   // why, for everything but a kill; the witness permutation of a relabelled cell
  std::string law = {};  // in place of the oracle, of a fault that no oracle sees
  double margin() const { return threshold > 0 ? deviation / threshold : 0.0; }
  std::string judge() const;  // the oracle, or the law
};

/// All cells of one fault under one oracle, or under its law.
struct KillRow {
  std::string fault;
  FaultFamily family = 'F';
  Oracle oracle = Oracle::native;
  bool expected = true;
  bool relabel_control = false;
  std::string witness;  // the first one, of a row with relabelled cells
  std::map<CellStatus, std::int64_t> counts;
  double weakest_margin = 0.0, strongest_margin = 0.0;  // over killed cells with a threshold
  double weakest_deviation = 0.0, strongest_deviation = 0.0;
  /// Cases tried up to the first kill, those that the fault cannot act on among them; drawn cases that are
  /// moved toward the fault count like those that need not be. 0: never killed.
  std::int64_t cases_to_first_kill = 0;
  std::string first_killing_case;
  std::string law = {};       // as in KillCell
  std::string judge() const;  // the oracle, or the law
};

/// Cells of a fault that no oracle sees, and the cases that its law fails on without it.
struct LawCells {
  std::vector<KillCell> cells;
  std::vector<std::string> baseline_failures;
};

struct KillOptions {
  std::vector<FaultChoice> faults;  // empty: all, with every legal argument
  std::vector<Oracle> oracles = {Oracle::layout, Oracle::exact, Oracle::tree, Oracle::native};
  bool only_declared = false;                     // no cells of oracles that need not see the fault
  std::vector<Case> cases;                        // cases every fault is tried on
  std::int64_t random_cases = 0;                  // further cases per fault where it is applicable
  std::function<Case(std::uint64_t index)> draw;  // random case number i
  /// Judges a fault that no oracle sees on random cases of its law that it acts on. Empty: such faults go
  /// without a row.
  std::function<LawCells(const FaultChoice& choice, std::int64_t cases)> by_law;
  double case_timeout_seconds = 60.0;
  int jobs = 1;
  ProgressSink progress;
};

/// A chosen fault of which too little is known: no oracle that has to detect it judged a case it acts on, or
/// it acts on fewer random cases than were asked for.
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
  /// "CONTROL is flagged under ORACLE: CASE LINE (WHY)": relabellings that an oracle took for faults, and
  /// such whose witness the bytes do not bear out.
  std::vector<std::string> false_alarms;
  /// In the order of the rows; then those short of random cases.
  std::vector<UnjudgedFault> without_evidence;
  /// Chosen faults that no oracle can see, each with the law that detects it.
  std::vector<std::pair<std::string, std::string>> judged_by_law;
  double score() const;        // worst family; 0 when no family has a score
  bool only_controls() const;  // faults of family Z alone: there is nothing to score
  /// Over the faults that were killed: in half of them the first kill came at this case or earlier, under the
  /// oracle that needed fewest; 0 when none was killed.
  double median_cases_to_first_kill() const;
  /// failed: a baseline failed, a control was missed or a relabelling flagged, a family scores below the
  /// minimum, or cells were judged and none was killed. Else vacuous (inconclusive) while a fault has no
  /// evidence, a relabelling could not be judged or nothing was judged.
  Verdict verdict(double minimum_score = 1.0) const;
  bool passed(double minimum_score = 1.0) const { return verdict(minimum_score) == Verdict::passed; }
};

/// A case is judged without the fault first; a fault counts as killed only where that passes. A row's status
/// for a case is killed when the oracle fails. It is equivalent when the fault has a witness, every oracle
/// agrees and, whichever oracles were chosen, bits are equal: the shards', or the logits' under exact and
/// tree for faults of the forward pass and its collectives. Equal bits without a witness have survived. Where
/// the witness is a relabelling the shards must be those of the relabelled model and the logits under exact
/// equal; layout then says relabelled, exact and native equivalent, and tree is not asked.
KillReport run_kill_matrix(const KillOptions& options);

/// The recorded configurations at every ordered pair used for the seed rows: source tp1, target t >= 2,
/// recorded weights seed 0, tokens 2 x 16.
std::vector<Case> recorded_kill_cases();

}  // namespace shardcheck
