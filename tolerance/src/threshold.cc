#include <algorithm>
#include <cmath>

#include "shardcheck/tensor/stream.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {
namespace {

constexpr int kRuns = 19;
constexpr double kMargin = 10.0;
constexpr double kUnitRoundoff = 0x1p-24;  // of f32

double largest_magnitude(const Tensor& logits) {
  double largest = 0.0;
  for (const float value : logits.f32()) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

}  // namespace

Threshold threshold_for(const Case& c, const TensorMap& weights, const Tokens& tokens,
                        const Tensor& reference) {
  const ReferenceModel model(c.geometry, weights, Arithmetic::native, contract_of(c));
  Threshold threshold;
  threshold.source = "10x the worst of 19 legal orders";
  const int parts = std::max(2, c.target.tp_degree());
  for (int run = 1; run <= kRuns; ++run) {
    const std::uint64_t seed = std::max<std::uint64_t>(1, stream_key(c.seed, "order " + std::to_string(run)));
    const Tensor reordered = model.forward(tokens, {seed, parts});
    threshold.floor = std::max(threshold.floor, compare_logits(reference, reordered).max_abs);
  }
  // Where sums are so short that 19 orders show no difference, the 20th may still round one logit the other
  // way: that is a unit roundoff of the largest logit, and no floor is taken below it.
  threshold.floor = std::max(threshold.floor, kUnitRoundoff * largest_magnitude(reference));
  threshold.value = kMargin * threshold.floor;
  return threshold;
}

}  // namespace shardcheck
