// State of an optimiser and of random numbers that moves with the parameters when a tensor-parallel group is
// laid out anew.
#pragma once

#include <string>
#include <vector>

#include "cut_tensors.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

/// A tensor with its layouts before and after.
struct MovedTensor {
  std::string name;
  Tensor whole;
  Placement before, after;
};

/// Process p was rank (p + shift) % degree of the group before, and is rank p after.
struct Regrouping {
  int degree = 1;
  int shift = 1;
  int before(int process) const { return (process + shift) % degree; }
};

/// layers.0.gate_up, whose rows of gate and up alternate before and are stacked after, layers.0.down, and the
/// first and second moment of each (exp_avg, exp_avg_sq); random_state, one row per rank.
std::vector<MovedTensor> training_state(const Case& c);
Regrouping regrouping_of(const Case& c);

/// How an engine moves state.
class StateMove {
 public:
  virtual ~StateMove() = default;
  /// What every process holds after, of what every process held before.
  virtual std::vector<Tensor> moved(const MovedTensor& tensor, const std::vector<Tensor>& held,
                                    const Regrouping& regrouping) const;
};

ShardedTensors moved_state(const Case& c, const StateMove& move);

}  // namespace shardcheck::effective
