#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

TEST(Threshold, IsMistrustedUnlessTheControlStandsTenTimesAboveIt) {
  Threshold threshold;
  threshold.source = "a test";
  threshold.control = 1.0;
  const auto mistrusted = [&](double value) {
    threshold.value = value;
    return !threshold.mistrusted().empty();
  };
  EXPECT_FALSE(mistrusted(1e-3));
  EXPECT_FALSE(mistrusted(0.125 * 0.75));
  EXPECT_TRUE(mistrusted(0.125));
  EXPECT_TRUE(mistrusted(2.0));
  EXPECT_TRUE(mistrusted(1e300));
  EXPECT_TRUE(mistrusted(0.0));
  EXPECT_TRUE(mistrusted(-1.0));
  EXPECT_TRUE(mistrusted(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(mistrusted(std::numeric_limits<double>::quiet_NaN()));
  threshold.control = 0.0;
  EXPECT_TRUE(mistrusted(1e-9));
}

TEST(ThresholdFor, AnInfiniteFloorIsMistrusted) {
  const Case c = small_case("seed", "seed:tp2");
  const TensorMap weights = weights_of(c);
  const Tokens tokens = make_tokens(c.geometry, c.batch, c.length, c.seed);
  const ReferenceModel model(c.geometry, weights, Arithmetic::native, contract_for(c.geometry));
  Tensor reference = model.forward(tokens);
  reference.mutable_f32()[0] = std::numeric_limits<float>::infinity();
  const Threshold threshold = threshold_for(c, weights, tokens, reference);
  EXPECT_TRUE(std::isinf(threshold.value));
  EXPECT_NE(threshold.mistrusted(), "");
}

TEST(ThresholdFor, TheControlRunsUnderTheContractOfTheCase) {
  Case c = small_case("seed", "seed:tp2");
  c.dtype = DType::bf16;  // activations are stored in 16 bits too
  Workbench bench(c);
  TensorMap weights = bench.weights();
  for (auto& [name, tensor] : weights) {
    if (name.ends_with(".o_proj")) tensor = Tensor::zeros(tensor.dtype(), tensor.shape());
  }
  const ReferenceModel silent(c.geometry, weights, Arithmetic::native, bench.contract());
  const Comparison comparison =
      compare_logits(bench.reference(Arithmetic::native), silent.forward(bench.tokens()));
  EXPECT_EQ(bench.threshold().control, comparison.max_abs);
}

TEST(ThresholdFor, RandomCasesAreTrusted) {
  for (const char* target : {"seed", "seed:tp2", "vllm-llama:tp4"}) {
    EXPECT_EQ(Workbench(small_case("seed", target)).threshold().mistrusted(), "");
  }
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
    EXPECT_EQ(bench.threshold().mistrusted(), "");
  }
  c.length = 15;
  EXPECT_NE(Workbench(c).threshold().source, "tolerance/in_process.json");
}

}  // namespace
}  // namespace shardcheck
