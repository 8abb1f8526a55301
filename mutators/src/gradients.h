// Gradients of replicated parameters over a tensor-parallel group: what each rank holds, and what a training
// engine makes of it.
#pragma once

#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

/// What an engine does with the partial gradients of a parameter that every rank holds whole: each rank's
/// backward pass sees its own heads and columns, so that the gradient is the sum over ranks.
class GradientSteps {
 public:
  virtual ~GradientSteps() = default;
  /// How many times the partial gradients of a replicated parameter are reduced: 1.
  virtual int reductions() const { return 1; }
  /// What a gradient is divided by on its way to the optimiser: 1.
  virtual float divisor(int /*degree*/) const { return 1.0F; }
};

/// Of a norm, a q norm and a row-parallel bias added once: the gradient that every rank's optimiser sees.
/// Partial gradients are whole numbers below 2^10 in magnitude, so that sums and halves are exact.
ShardedTensors reduced_gradients(const Case& c, const GradientSteps& steps);

}  // namespace shardcheck::effective
