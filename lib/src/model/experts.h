// A mixture of experts as plain arithmetic: which experts a token goes to, and how their outputs are added.
// Both models use this; neither ranks nor layouts appear.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// The experts of one token, ascending, and their weights, which add up to about 1.
struct RoutedToken {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
};

/// Routes every row of router logits [rows, n_experts], f32 in a fixed order, ties to the lower expert.
/// Without a router bias: the largest logits, weights a softmax over them (Mixtral). With one: the largest
/// sigmoid(logit) + bias, weights the sigmoids over their sum + 1e-20 (DeepSeek-V3 without its groups and
/// scaling factor). Under exact the sums do not depend on the experts' order. NaN ranks below every number.
std::vector<RoutedToken> route(const Geometry& geometry, Arithmetic arithmetic, const Matrix& logits,
                               std::span<const float> router_bias);

/// Rows of the tokens that an expert works on, ascending.
Matrix rows_routed_to(const Matrix& x, std::span<const RoutedToken> routed, std::int64_t expert);

/// One expert's part of a token's output.
struct ExpertTerm {
  float weight;
  const float* output;
};

/// y[0, width) = sum of weight * output over the terms in their order, one f32 chain of fused multiply-adds
/// from +0, then + shared where it is not null. Under exact: one exact sum, rounded once.
void combine_experts(const Numerics& numerics, std::span<const ExpertTerm> terms, const float* shared,
                     std::int64_t width, float* y);

}  // namespace shardcheck
