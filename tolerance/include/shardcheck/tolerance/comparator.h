// Comparing two logits tensors: how far apart, where, and whether the comparison means anything.
#pragma once

#include <cstdint>
#include <string>

#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// The seed's absolute unit: 2^-23, the spacing of f32 at 1.
inline constexpr double kUlp = 0x1p-23;

struct Comparison {
  double max_abs = 0.0;     // infinity when a NaN or an infinity stands on either side
  double median_abs = 0.0;  // lower of the two middle values
  double mean_abs = 0.0;
  double relative_l2 = 0.0;              // ||a - e|| / ||e||
  double angle = 0.0;                    // radians between the two as vectors
  std::int64_t worst_index = -1;         // flat
  std::int64_t worst_row = -1;           // token position
  float expected = 0.0F, actual = 0.0F;  // at the worst index
  std::int64_t differing_bits = 0;       // elements whose bits differ
  std::string vacuous;                   // why the comparison means nothing; empty when it does

  double max_ulp() const { return max_abs / kUlp; }
};

/// f32 tensors of one shape (std::invalid_argument otherwise). Vacuous: empty, constant, or at least 90 %
/// zeros on the expected side. NaN or infinity anywhere makes max_abs infinite, also at the same place on
/// both sides.
Comparison compare_logits(const Tensor& expected, const Tensor& actual);

}  // namespace shardcheck
