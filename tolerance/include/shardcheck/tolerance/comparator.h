// Comparing two logits tensors: how far apart, where, and whether the comparison means anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// f32 tensors of one shape (std::invalid_argument otherwise). NaN or infinity anywhere makes max_abs
/// infinite, also at the same place on both sides. Vacuous, by the expected side alone: empty; a NaN, an
/// infinity or an element nobody wrote; constant; one value in at least 90 % of the elements; two equal
/// blocks where the rows (tokens) or the columns (vocabulary) are cut in 2 to 8 parts as ranks cut them,
/// because exchanging the two would not show.
Comparison compare_logits(const Tensor& expected, const Tensor& actual);

/// The logits of every rank against one reference.
struct RankComparison {
  Comparison worst;          // of the rank that lies farthest; differing_bits are the most of any rank
  int worst_rank = 0;        // the first of those that lie farthest
  int dissenting_rank = -1;  // first rank whose logits are not rank 0's bit for bit, -1: none
};

/// Looks at every rank. Throws std::invalid_argument without a rank, and as compare_logits does.
RankComparison compare_ranks(const Tensor& expected, const std::vector<Tensor>& logits);

}  // namespace shardcheck
