// Inputs that hide bugs are a failed health check, not a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "law_support.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> weight_labels(const TensorMap& weights) {
  std::vector<std::string> labels;
  label_weights(weights, labels);
  return labels;
}

Geometry with_biases() {
  Geometry g = default_geometry();
  g.d_model = 24;
  g.qkv_bias = g.o_bias = true;
  return g;
}

TEST(LabelWeights, PoweredWeightsHaveSpreadNormsAndBiases) {
  EXPECT_THAT(weight_labels(make_weights(with_biases(), WeightStyle::powered, 1, DType::f32)),
              ElementsAre("norms_spread", "nonzero_biases"));
  EXPECT_THAT(weight_labels(make_weights(with_biases(), WeightStyle::powered, 1, DType::bf16)),
              ElementsAre("norms_spread", "nonzero_biases"));
}

TEST(LabelWeights, NormsNearOneAndABiasOfZeroAreNotLabelled) {
  TensorMap weights = make_weights(with_biases(), WeightStyle::recorded, 1, DType::f32);
  EXPECT_THAT(weight_labels(weights), ElementsAre("nonzero_biases")) << "recorded norms are 1 + 0.1 N";
  weights.at("layers.0.o_bias").mutable_f32()[3] = 0.0F;
  EXPECT_THAT(weight_labels(weights), IsEmpty());
}

std::vector<std::string> labels_with(const std::function<void(Case&)>& change) {
  Case c;
  c.geometry = {
      .d_model = 20, .n_layers = 1, .n_heads = 6, .n_kv_heads = 2, .head_dim = 4, .ffn = 28, .vocab = 31};
  change(c);
  return labels_of(c);
}

TEST(LabelsOf, SayWhetherInputsArePowered) {
  const auto as_it_is = labels_with([](Case&) {});
  for (const char* label :
       {"distinct_widths", "powered_weights", "tokens>=32", "heads_not_power_of_two", "groups>=2x2"})
    EXPECT_THAT(as_it_is, Contains(label));
  const std::map<std::string, std::function<void(Case&)>> spoilt = {
      {"distinct_widths", [](Case& c) { c.geometry.ffn = 20; }},
      {"powered_weights", [](Case& c) { c.weights = WeightStyle::recorded; }},
      {"tokens>=32", [](Case& c) { c.length = 31; }},
      {"heads_not_power_of_two", [](Case& c) { c.geometry.n_heads = 4; }},
      {"groups>=2x2", [](Case& c) { c.geometry.n_kv_heads = 6; }},
  };
  for (const auto& [label, spoil] : spoilt)
    EXPECT_THAT(labels_with(spoil), testing::Not(Contains(label))) << label;
  EXPECT_THAT(labels_with([](Case& c) { c.geometry.d_model = c.geometry.kv_width(); }),
              testing::Not(Contains("distinct_widths")));
}

TEST(Runner, ALawOnInputsThatHideBugsIsInconclusive) {
  Law law = law_named("sharded_equals_reference");
  law.draw = [](Stream& stream) {
    Case c = law_named("sharded_equals_reference").draw(stream);
    c.weights = WeightStyle::recorded;
    c.arithmetic = Arithmetic::tree;
    c.batch = 1;
    c.length = 4;
    return c;
  };
  RunOptions options;
  options.seed = 5;
  options.cases = 200;
  options.jobs = 2;
  const LawReport report = run_law(law, options);
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  for (const char* label : {"powered_weights", "tokens>=32", "norms_spread"})
    EXPECT_THAT(report.health, Contains(HasSubstr(std::string("are labelled '") + label + "'")));
}

}  // namespace
}  // namespace shardcheck
