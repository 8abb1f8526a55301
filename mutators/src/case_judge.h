// One case of the kill matrix: the right subject first, then every fault under every oracle.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/mutators/kill_matrix.h"

namespace shardcheck {

struct KillWork {
  Case value;               // without a fault
  std::int64_t number = 1;  // of the cases tried so far, this one among them
  std::vector<FaultChoice> faults;
};

struct JudgedWork {
  std::vector<KillCell> cells;   // by fault, then oracle; empty when the right subject failed
  std::string baseline_failure;  // empty when it did not
};

/// Whether the matrix has a cell for this pair: every oracle of the options, or the declared ones alone.
/// A relabel control has those that may not flag it, and the layout oracle that says what it is.
bool is_asked(const KillOptions& options, const Fault& fault, Oracle oracle);

/// A cell that takes longer than the options allow is a timeout whatever its verdict would be; it is not
/// interrupted. A fault that raises, or that changes a shape or dtype, is an error and no kill.
JudgedWork judge_work(const KillWork& work, const KillOptions& options);

}  // namespace shardcheck
