// Gradients over a tensor-parallel group: what each rank's backward pass gives, and what a training engine
// makes of it.
#pragma once

#include <string_view>

#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

/// What an engine does with gradients. Of a parameter that every rank holds whole, a rank's backward pass
/// sees its own heads and columns, so that the gradient is the sum over ranks; of a column-parallel weight it
/// gives the gradient of the rank's own rows.
class GradientSteps {
 public:
  virtual ~GradientSteps() = default;
  /// How many times the partial gradients of a replicated parameter are reduced: 1.
  virtual int reductions() const { return 1; }
  /// How many times the gradients of the shards of a column-parallel weight are: 0.
  virtual int reductions_of_shards() const { return 0; }
  /// What the reduced gradient of a replicated parameter is divided by on its way to the optimiser: 1.
  virtual float divisor(std::string_view /*parameter*/, int /*degree*/) const { return 1.0F; }
};

/// Of a norm, a q norm and a row-parallel bias added once, which every rank holds, and of the shards of a
/// column-parallel weight: the gradient that every rank's optimiser sees. Partial gradients are whole numbers
/// below 2^10 in magnitude, so that sums are exact.
ShardedTensors reduced_gradients(const Case& c, const GradientSteps& steps);

}  // namespace shardcheck::effective
