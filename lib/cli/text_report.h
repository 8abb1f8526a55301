// The sections of a run as text.
#pragma once

#include <string>
#include <vector>

#include "invariants.h"
#include "shardcheck/mutators/kill_matrix.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck {

std::string invariant_table(const InvariantReport& report);
/// One row per law.
std::string law_table(const std::vector<LawReport>& reports);
/// One row per fault under its family's score, the original's published figures beside ours; survivors below.
std::string kill_table(const KillReport& report);

/// One row of the kill table: a fault under every oracle.
struct FaultSummary {
  std::string fault;
  FaultFamily family = 'F';
  std::vector<const KillRow*> rows;  // by oracle
  // Over killed native cells of the recorded configurations; 0 when there are none.
  double weakest_deviation = 0.0, strongest_deviation = 0.0;
  double weakest_margin = 0.0, strongest_margin = 0.0;
  bool relabel_control() const { return rows.front()->relabel_control; }
};
std::vector<FaultSummary> summarize(const KillReport& report);

std::int64_t count_of(const KillRow& row, CellStatus status);
/// Cells of a relabelling that the layout oracle named or that agree under exact or native.
std::int64_t recognised_in(const KillRow& row);
/// Cells that had to be killed: killed, survived, vacuous, timeout and error.
std::int64_t applicable_of(const KillRow& row);

}  // namespace shardcheck
