// One case of the kill matrix: the right subject first, then every fault under every oracle.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/mutators/kill_matrix.h"

namespace shardcheck {

struct KillWork {
  Case value;  // without a fault
  std::vector<FaultChoice> faults;
};

struct JudgedWork {
  std::vector<KillCell> cells;   // by fault, then oracle; empty when the right subject failed
  std::string baseline_failure;  // empty when it did not
};

/// A cell that takes longer than `timeout_seconds` is a timeout whatever its verdict would be; it is not
/// interrupted. A fault that raises, or that changes a shape or dtype, is an error and no kill.
JudgedWork judge_work(const KillWork& work, const std::vector<Oracle>& oracles, double timeout_seconds);

}  // namespace shardcheck
