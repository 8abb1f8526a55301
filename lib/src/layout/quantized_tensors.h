// Checks and slices of the stored tensors of a quantised weight. Private to the library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardcheck/layout/quantized.h"

namespace shardcheck {

/// Slices of a dimension, from `begin` on.
struct SlicesFrom {
  const Tensor& tensor;
  std::int64_t begin;
};

/// Copies `count` slices of dimension `dim` to `begin` of the target, whose other extents and dtype are
/// equal.
void copy_slices(SlicesFrom source, Tensor& target, std::int64_t begin, std::int64_t count, int dim);

/// The stored tensor of a companion. Throws InvalidInput naming `where` and the tensor unless it is there
/// with the dtype of the companion and the given shape.
const Tensor& stored_tensor(const std::string& where, const PlacedCompanion& companion, const Shape& shape,
                            const TensorMap& tensors);

/// Throws InvalidInput as stored_tensor does for every companion, and when there is a tensor of another name.
void require_stored(const std::string& where, const PlacedQuantized& placed, const TensorMap& tensors,
                    int degree);

}  // namespace shardcheck
