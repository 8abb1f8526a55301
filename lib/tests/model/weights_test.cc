#include "shardcheck/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

Geometry small() {
  Geometry g;
  g.d_model = 48, g.n_layers = 2, g.n_heads = 6, g.n_kv_heads = 2, g.head_dim = 8, g.ffn = 80, g.vocab = 97;
  g.qkv_bias = g.qk_norm = true;
  return g;
}

double deviation_of(std::span<const float> values, double mean) {
  double sum = 0.0;
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Weights, AreAPureFunctionOfSeedAndName) {
  const auto first = make_weights(small(), WeightStyle::powered, 7, DType::f32);
  const auto again = make_weights(small(), WeightStyle::powered, 7, DType::f32);
  const auto other = make_weights(small(), WeightStyle::powered, 8, DType::f32);
  for (const auto& [name, tensor] : first) {
    EXPECT_TRUE(tensor.same_bytes(again.at(name))) << name;
    EXPECT_FALSE(tensor.same_bytes(other.at(name))) << name;
  }
  // A tensor's values do not depend on which other tensors exist.
  Geometry plain = small();
  plain.qkv_bias = false;
  EXPECT_TRUE(
      make_weights(plain, WeightStyle::powered, 7, DType::f32).at("lm_head").same_bytes(first.at("lm_head")));
}

TEST(Weights, NoTwoTensorsOfAModelAreEqual) {
  const auto weights = make_weights(small(), WeightStyle::powered, 3, DType::f32);
  EXPECT_FALSE(weights.at("layers.0.gate").same_bytes(weights.at("layers.0.up")));
  EXPECT_FALSE(weights.at("layers.0.k").same_bytes(weights.at("layers.0.v")));
  EXPECT_FALSE(weights.at("layers.0.q").same_bytes(weights.at("layers.1.q")));
}

TEST(Weights, StylesHaveTheirMoments) {
  const auto recorded = make_weights(toy(), WeightStyle::recorded, 0, DType::f32);
  EXPECT_NEAR(deviation_of(recorded.at("lm_head").f32(), 0.0), 0.02, 0.0002);
  EXPECT_NEAR(deviation_of(recorded.at("final_norm").f32(), 1.0), 0.1, 0.02);
  const auto powered = make_weights(toy(), WeightStyle::powered, 0, DType::f32);
  EXPECT_NEAR(deviation_of(powered.at("layers.0.down").f32(), 0.0), 1.0 / std::sqrt(704.0), 0.001);
  EXPECT_NEAR(deviation_of(powered.at("embed").f32(), 0.0), 1.0, 0.01);
}

TEST(Weights, OtherFamiliesHaveTheirMoments) {
  Geometry g = small();
  g.norm = Norm::layer, g.positions = 200, g.sinks = true, g.n_heads = g.n_kv_heads = 400, g.head_dim = 1;
  g.n_experts = 8, g.expert_ffn = 90, g.qk_norm = false;
  const auto powered = make_weights(g, WeightStyle::powered, 0, DType::f32);
  EXPECT_NEAR(deviation_of(powered.at("positions").f32(), 0.0), 0.5, 0.02);
  EXPECT_NEAR(deviation_of(powered.at("layers.0.sinks").f32(), 0.0), 1.0, 0.1);
  EXPECT_NEAR(deviation_of(powered.at("layers.0.attn_norm").f32(), 1.0), 0.5, 0.15);
  EXPECT_NEAR(deviation_of(powered.at("final_norm_bias").f32(), 0.0), 0.5, 0.15);
  EXPECT_NEAR(deviation_of(powered.at("layers.0.router").f32(), 0.0), 1.0 / std::sqrt(48.0), 0.02);
  EXPECT_NEAR(deviation_of(powered.at("layers.0.experts.3.down").f32(), 0.0), 1.0 / std::sqrt(90.0), 0.01);
  const auto recorded = make_weights(g, WeightStyle::recorded, 0, DType::f32);
  EXPECT_NEAR(deviation_of(recorded.at("positions").f32(), 0.0), 0.02, 0.001);
  EXPECT_NEAR(deviation_of(recorded.at("final_norm_bias").f32(), 0.0), 0.02, 0.007);
}

TEST(Weights, NarrowDtypesAreRoundedValues) {
  const auto wide = make_weights(small(), WeightStyle::powered, 5, DType::f32);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto& [name, tensor] : make_weights(small(), WeightStyle::powered, 5, dtype)) {
      EXPECT_TRUE(tensor.same_bytes(wide.at(name).to(dtype))) << name;
    }
  }
  EXPECT_THROW(make_weights(small(), WeightStyle::powered, 0, DType::i64), InvalidInput);
}

TEST(Fingerprint, EveryElementDecodesToItsOrigin) {
  const Geometry g = small();
  const auto prints = make_weights(g, WeightStyle::fingerprint, 0, DType::f32);
  std::set<std::uint32_t> seen;
  for (const auto& [name, tensor] : prints) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const auto bits = static_cast<std::uint32_t>(tensor.bits(i));
      ASSERT_TRUE(seen.insert(bits).second);
      if (i % 61 != 0) continue;
      const auto origin = decode_fingerprint(g, bits);
      ASSERT_TRUE(origin.has_value());
      EXPECT_EQ(origin->tensor, name);
      EXPECT_EQ(origin->index, i);
    }
  }
  EXPECT_FALSE(decode_fingerprint(g, 0).has_value());
  EXPECT_FALSE(decode_fingerprint(g, *seen.rbegin() + 1).has_value());
}

TEST(Tokens, AreInRangeAndReachBothEnds) {
  Geometry g = small();
  g.vocab = 5;
  const auto tokens = make_tokens(g, 4, 50, 1);
  EXPECT_EQ(tokens.count(), 200);
  EXPECT_EQ(std::set<std::int32_t>(tokens.ids.begin(), tokens.ids.end()),
            (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_THROW(make_tokens(g, 0, 5, 1), InvalidInput);
}

TEST(RequireWeights, NamesTheTensorThatIsWrong) {
  const auto message = [](TensorMap weights) {
    try {
      require_weights_of(small(), weights);
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  auto weights = make_weights(small(), WeightStyle::powered, 0, DType::f32);
  EXPECT_EQ(message(weights), "accepted");
  auto missing = weights;
  missing.erase("layers.1.down");
  EXPECT_THAT(message(missing), HasSubstr("layers.1.down"));
  auto extra = weights;
  extra["layers.2.q"] = Tensor();
  EXPECT_THAT(message(extra), HasSubstr("layers.2.q"));
  auto misshapen = weights;
  misshapen["final_norm"] = Tensor::zeros(DType::f32, {47});
  EXPECT_THAT(message(misshapen), HasSubstr("final_norm has shape [47], expected [48]"));
  auto mistyped = weights;
  mistyped["final_norm"] = Tensor::zeros(DType::i32, {48});
  EXPECT_THAT(message(mistyped), HasSubstr("i32"));
}

}  // namespace
}  // namespace shardcheck
