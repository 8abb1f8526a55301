#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "control.h"
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

double control_deviation(const Geometry& geometry, const Contract& contract, const TensorMap& weights,
                         const Tokens& tokens, const Tensor& reference) {
  TensorMap silenced = weights;
  for (auto& [name, tensor] : silenced) {
    if (name.ends_with(".o_proj")) tensor = Tensor::zeros(tensor.dtype(), tensor.shape());
  }
  const ReferenceModel silent(geometry, silenced, Arithmetic::native, contract);
  return compare_logits(reference, silent.forward(tokens)).max_abs;
}

bool Threshold::is_usable() const { return std::isfinite(value) && value > 0.0; }

std::string Threshold::mistrusted() const {
  if (!is_usable()) return fmt::format("the threshold is {} ({}), which decides nothing", value, source);
  if (control >= kLeastMargin * value) return {};
  return fmt::format(
      "the threshold {:.4g} ({}) is too large: a model without attention deviates by {:.4g}, less than "
      "{:.0f} times as much",
      value, source, control, kLeastMargin);
}

Threshold threshold_for(const Case& c, const TensorMap& weights, const Tokens& tokens,
                        const Tensor& reference) {
  const ReferenceModel model(c.geometry, weights, Arithmetic::native, contract_of(c));
  Threshold threshold;
  threshold.source = "10x the worst of 19 legal orders";
  // Ranks that hold other experts add their outputs to the sum of those that share one.
  const int parts = std::max(2, c.target.tp_degree() * c.target.degree("ep"));
  for (int run = 1; run <= kRuns; ++run) {
    const std::uint64_t seed = std::max<std::uint64_t>(1, stream_key(c.seed, "order " + std::to_string(run)));
    const Tensor reordered = model.forward(tokens, {seed, parts});
    threshold.floor = std::max(threshold.floor, compare_logits(reference, reordered).max_abs);
  }
  // Where sums are so short that 19 orders show no difference, the 20th may still round one logit the other
  // way: that is a unit roundoff of the largest logit, and no floor is taken below it.
  threshold.floor = std::max(threshold.floor, kUnitRoundoff * largest_magnitude(reference));
  threshold.value = kMargin * threshold.floor;
  threshold.control = control_deviation(c.geometry, contract_of(c), weights, tokens, reference);
  return threshold;
}

}  // namespace shardcheck
