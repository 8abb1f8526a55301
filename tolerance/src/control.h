// The control of the fault catalogue (zero_o_proj_output) as a number: what every threshold must reject.
#pragma once

#include "shardcheck/model/reference_model.h"

namespace shardcheck {

/// Largest |logit difference| between `reference`, the native logits of these weights, and the same model
/// with every output projection zero.
double control_deviation(const Geometry& geometry, const Contract& contract, const TensorMap& weights,
                         const Tokens& tokens, const Tensor& reference);

}  // namespace shardcheck
