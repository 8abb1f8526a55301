// Quantised weights with random bytes over a tensor-parallel group, and the sharding rules of their formats,
// written down apart from placements.
#pragma once

#include <cstdint>
#include <vector>

#include "shardcheck/layout/quantized.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {

/// What the extents of any matrix of a format (own) and those of a rank of a cut one (cut) are multiples of.
struct QuantUnits {
  std::int64_t own_out = 1, own_in = 1, cut_out = 1, cut_in = 1;
};
QuantUnits units_of(const QuantFormat& format);

/// A quantised weight to be cut over `degree` ranks.
struct QuantizedProblem {
  QuantizedMatrix matrix;
  ParallelStyle style = ParallelStyle::column;
  int degree = 1;
  TensorMap full = {};  // its stored tensors

  /// What the style cuts, each length on its own.
  std::vector<std::int64_t> cut_lengths() const;
  /// The rows or columns of its dense weight, f32 [out, in], that a rank holds: its share of every length, in
  /// order.
  Tensor share_of(const Tensor& weight, int rank) const;
};

/// The stored tensors of a matrix: any bits, except that scales of 16 and 32 bits are finite and positive,
/// and that group ids name every group.
TensorMap random_tensors(Stream& stream, const QuantizedMatrix& matrix);

}  // namespace shardcheck
