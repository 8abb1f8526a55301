// Arithmetic of Partial placements: every rank holds an addend, the tensor is their sum.
#pragma once

#include <vector>

#include "shardcheck/layout/placement.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// One addend per rank. Throws UnsupportedLayout for an encoding that divides and a dtype that cannot.
std::vector<Tensor> split_partial(const PlacedTensor& placed, const Partial& partial, const Tensor& full);

/// Sum over ranks in f64, ascending, rounded once. Zero addends change nothing, so (b, 0, ..., 0) gives the
/// bits of b. Throws UnsupportedLayout for a dtype other than f64, f32, bf16 and f16.
Tensor sum_partial(const PlacedTensor& placed, const std::vector<Tensor>& shards);

}  // namespace shardcheck
