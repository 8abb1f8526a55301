#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

/// What experts are chosen by: an order needs numbers, so NaN counts as less than all of them.
std::vector<float> choice_scores(std::span<const float> logits, std::span<const float> bias) {
  std::vector<float> scores(logits.begin(), logits.end());
  for (std::size_t e = 0; e < bias.size(); ++e) scores[e] = sigmoid_f32(scores[e]) + bias[e];
  for (float& score : scores) {
    if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  }
  return scores;
}

/// All experts, the best first; of equal scores the lower expert.
std::vector<std::int64_t> ranking(std::span<const float> scores) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  return order;
}

std::int64_t chosen_per_token(const Geometry& geometry) {
  return std::min(geometry.experts_per_token, geometry.n_experts);
}

/// Unnormalised weights of the chosen experts, then each over their sum.
std::vector<float> weights_of(std::span<const float> logits, std::span<const std::int64_t> experts,
                              Arithmetic arithmetic, bool sigmoids) {
  std::vector<float> weights;
  for (const std::int64_t expert : experts) weights.push_back(logits[static_cast<std::size_t>(expert)]);
  const float top = *std::ranges::max_element(weights);
  float sum = 0.0F;
  for (float& weight : weights) {
    weight = sigmoids ? sigmoid_f32(weight) : exp_f32(weight - top);
    sum += weight;
  }
  if (arithmetic == Arithmetic::exact) sum = exact_sum(weights);
  if (sigmoids) sum += 1e-20F;  // all of them may have underflowed
  for (float& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

std::vector<RoutedToken> route(const Geometry& geometry, Arithmetic arithmetic, const Matrix& logits,
                               std::span<const float> router_bias) {
  std::vector<RoutedToken> routed;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const std::span<const float> row(logits.row(i), static_cast<std::size_t>(logits.width));
    RoutedToken& token = routed.emplace_back();
    token.experts = ranking(choice_scores(row, router_bias));
    token.experts.resize(static_cast<std::size_t>(chosen_per_token(geometry)));
    std::ranges::sort(token.experts);
    token.weights = weights_of(row, token.experts, arithmetic, !router_bias.empty());
  }
  return routed;
}

Matrix rows_routed_to(const Matrix& x, std::span<const RoutedToken> routed, std::int64_t expert) {
  Matrix rows(0, x.width);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const auto& experts = routed[static_cast<std::size_t>(i)].experts;
    if (std::ranges::find(experts, expert) == experts.end()) continue;
    rows.values.insert(rows.values.end(), x.row(i), x.row(i + 1));
    ++rows.rows;
  }
  return rows;
}

void combine_experts(const Numerics& numerics, std::span<const ExpertTerm> terms, const float* shared,
                     std::int64_t width, float* y) {
  for (std::int64_t j = 0; j < width; ++j) {
    if (numerics.arithmetic == Arithmetic::exact) {
      LongAccumulator sum;
      for (const ExpertTerm& term : terms) sum.add_product(term.weight, term.output[j]);
      if (shared != nullptr) sum.add(shared[j]);
      y[j] = sum.round();
      continue;
    }
    float sum = 0.0F;
    for (const ExpertTerm& term : terms) sum = std::fma(term.weight, term.output[j], sum);
    y[j] = shared == nullptr ? sum : sum + shared[j];
  }
}

}  // namespace shardcheck
