#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shardcheck/tolerance/workbench.h"
#include "small_cases.h"

namespace shardcheck {
namespace {

Threshold threshold_of(const Case& c, const TensorMap& weights) {
  const Tokens tokens = make_tokens(c.geometry, c.batch, c.length, c.seed);
  const ReferenceModel model(c.geometry, weights, Arithmetic::native, contract_for(c.geometry));
  return threshold_for(c, weights, tokens, model.forward(tokens));
}

TensorMap weights_of(const Case& c) { return make_weights(c.geometry, c.weights, c.seed, c.dtype); }

TEST(ThresholdFor, IsTenTimesTheWorstOrderAndSaysSo) {
  const Case c = small_case("seed", "seed:tp2");
  const Threshold threshold = threshold_of(c, weights_of(c));
  EXPECT_GT(threshold.floor, 0.0);
  EXPECT_EQ(threshold.value, 10 * threshold.floor);
  EXPECT_EQ(threshold.source, "10x the worst of 19 legal orders");
}

TEST(ThresholdFor, IsAFunctionOfTheCase) {
  const Case c = small_case("seed", "seed:tp4");
  EXPECT_EQ(threshold_of(c, weights_of(c)).value, threshold_of(c, weights_of(c)).value);
}

TEST(ThresholdFor, ScalesWithTheLogits) {
  const Case c = small_case("seed", "seed:tp2");
  TensorMap weights = weights_of(c);
  const Threshold before = threshold_of(c, weights);
  for (float& weight : weights.at("lm_head").mutable_f32()) weight *= 1024.0F;  // exact
  EXPECT_EQ(threshold_of(c, weights).value, 1024 * before.value);
}

TEST(ThresholdFor, IsFarBelowTheLogitsAndAboveTheirRounding) {
  for (const char* target : {"seed", "seed:tp2", "seed:tp4"}) {
    const Case c = small_case("seed", target);
    Workbench bench(c);
    double largest = 0.0;
    for (const float logit : bench.reference(Arithmetic::native).f32()) {
      largest = std::max(largest, std::fabs(static_cast<double>(logit)));
    }
    EXPECT_GE(bench.threshold().value, 10 * 0x1p-24 * largest);
    EXPECT_LT(bench.threshold().value, 1e-3 * largest);
  }
}

TEST(ThresholdFor, SumsOfOneTermAreGivenOneRoundingOfTheLargestLogit) {
  Case c = small_case("seed", "seed");
  c.geometry.n_heads = c.geometry.n_kv_heads = c.geometry.head_dim = c.geometry.ffn = 1;
  c.geometry.rope = Rope::none;
  Workbench bench(c);
  double largest = 0.0;
  for (const float logit : bench.reference(Arithmetic::native).f32()) {
    largest = std::max(largest, std::fabs(static_cast<double>(logit)));
  }
  EXPECT_EQ(bench.threshold().floor, 0x1p-24 * largest);
}

TEST(RecordedThreshold, ServesTheRecordedConfigurationsAlone) {
  Case c = small_case("seed", "seed:tp2");
  c.geometry = toy();
  c.weights = WeightStyle::recorded;
  c.batch = 2;
  c.length = 16;
  {
    Workbench bench(c);
    EXPECT_EQ(bench.threshold().source, "tolerance/in_process.json");
    EXPECT_EQ(bench.threshold().value, 1e-3);
  }
  c.length = 15;
  EXPECT_NE(Workbench(c).threshold().source, "tolerance/in_process.json");
}

}  // namespace
}  // namespace shardcheck
