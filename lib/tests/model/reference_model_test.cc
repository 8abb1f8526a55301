#include "shardcheck/model/reference_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/naive_model.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

struct Variant {
  std::string name;
  Geometry geometry;
};

std::vector<Variant> variants() {
  Geometry plain;
  plain.d_model = 40, plain.n_layers = 2, plain.n_heads = 6, plain.n_kv_heads = 3, plain.head_dim = 8,
  plain.ffn = 56, plain.vocab = 61;
  Geometry rope = plain;
  rope.rope = Rope::half;
  Geometry qwen2 = rope;
  qwen2.qkv_bias = true;
  qwen2.rope_theta = 1e6;
  Geometry qwen3 = rope;
  qwen3.qk_norm = true;
  qwen3.norm_eps = 1e-5;
  Geometry tied = rope;
  tied.tied = true;
  Geometry single = plain;
  single.n_heads = single.n_kv_heads = 1;
  return {{"plain", plain}, {"rope", rope}, {"qwen2", qwen2},
          {"qwen3", qwen3}, {"tied", tied}, {"single", single}};
}

double worst_against_naive(const Geometry& g, Arithmetic arithmetic) {
  const auto weights = make_weights(g, WeightStyle::powered, 11, DType::f32);
  const Tokens tokens = make_tokens(g, 2, 19, 12);
  const ReferenceModel model(g, weights, arithmetic, contract_for(g));
  const Tensor logits = model.forward(tokens);
  double worst = 0.0;
  for (std::int64_t b = 0; b < tokens.batch; ++b) {
    const auto first = tokens.ids.begin() + b * tokens.length;
    const auto expected = naive::Model(g, weights).forward({first, first + tokens.length});
    for (std::int64_t i = 0; i < tokens.length; ++i) {
      for (std::int64_t j = 0; j < g.vocab; ++j) {
        const double actual = logits.f32()[static_cast<std::size_t>((b * tokens.length + i) * g.vocab + j)];
        worst = std::max(
            worst, std::abs(actual - expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]));
      }
    }
  }
  return worst;
}

TEST(ReferenceModel, AgreesWithAnIndependentForwardInDoublePrecision) {
  for (const auto& [name, geometry] : variants()) {
    EXPECT_LT(worst_against_naive(geometry, Arithmetic::native), 5e-5) << name;
    EXPECT_LT(worst_against_naive(geometry, Arithmetic::tree), 5e-5) << name;
  }
}

TEST(ReferenceModel, APositionDoesNotSeeLaterTokens) {
  const Geometry g = variants()[1].geometry;
  const ReferenceModel model(g, make_weights(g, WeightStyle::powered, 1, DType::f32), Arithmetic::tree,
                             contract_for(g));
  Tokens tokens = make_tokens(g, 1, 24, 2);
  const Tensor before = model.forward(tokens);
  tokens.ids[20] = (tokens.ids[20] + 1) % static_cast<std::int32_t>(g.vocab);
  const Tensor after = model.forward(tokens);
  EXPECT_TRUE(before.rows(0, 20).same_bytes(after.rows(0, 20)));
  EXPECT_FALSE(before.rows(20, 1).same_bytes(after.rows(20, 1)));
  EXPECT_FALSE(before.rows(23, 1).same_bytes(after.rows(23, 1)));
}

TEST(ReferenceModel, DeliberateMistakesChangeTheFunction) {
  const Geometry g = variants()[0].geometry;
  const auto weights = make_weights(g, WeightStyle::powered, 1, DType::f32);
  const Tokens tokens = make_tokens(g, 1, 24, 2);
  const Tensor right = ReferenceModel(g, weights, Arithmetic::native, contract_for(g)).forward(tokens);
  for (const auto mistake :
       {ReferenceModel::Mistake{.non_causal = true}, ReferenceModel::Mistake{.layer_norm = true}}) {
    const Tensor wrong =
        ReferenceModel(g, weights, Arithmetic::native, contract_for(g), mistake).forward(tokens);
    EXPECT_FALSE(wrong.same_bytes(right));
  }
}

TEST(ReferenceModel, LegalSummationOrdersDifferALittle) {
  const Geometry g = variants()[1].geometry;
  const ReferenceModel model(g, make_weights(g, WeightStyle::powered, 1, DType::f32), Arithmetic::native,
                             contract_for(g));
  const Tokens tokens = make_tokens(g, 1, 24, 2);
  const Tensor plain = model.forward(tokens);
  const Tensor reordered = model.forward(tokens, {.seed = 5, .parts = 3});
  EXPECT_TRUE(reordered.same_bytes(model.forward(tokens, {.seed = 5, .parts = 3})));
  EXPECT_FALSE(reordered.same_bytes(model.forward(tokens, {.seed = 6, .parts = 3})));
  EXPECT_FALSE(reordered.same_bytes(plain));
  for (std::size_t i = 0; i < plain.f32().size(); ++i) EXPECT_NEAR(plain.f32()[i], reordered.f32()[i], 1e-4);
  EXPECT_TRUE(model.forward(tokens, {.seed = 5, .parts = 1}).same_bytes(plain));
}

TEST(ReferenceModel, NarrowWeightsGiveTheSameLogitsAsTheirWidenedValues) {
  const Geometry g = variants()[2].geometry;
  const Tokens tokens = make_tokens(g, 1, 8, 2);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto narrow = make_weights(g, WeightStyle::powered, 1, dtype);
    TensorMap wide;
    for (const auto& [name, tensor] : narrow) wide.emplace(name, tensor.to(DType::f32));
    EXPECT_TRUE(ReferenceModel(g, narrow, Arithmetic::tree, contract_for(g))
                    .forward(tokens)
                    .same_bytes(ReferenceModel(g, wide, Arithmetic::tree, contract_for(g)).forward(tokens)));
  }
}

TEST(ReferenceModel, RefusesTokensOutsideTheVocabulary) {
  const Geometry g = variants()[0].geometry;
  const ReferenceModel model(g, make_weights(g, WeightStyle::powered, 1, DType::f32), Arithmetic::native,
                             contract_for(g));
  for (const std::int32_t id : {-1, 61}) {
    try {
      model.forward(Tokens{1, 2, {0, id}});
      ADD_FAILURE() << "accepted token " << id;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr("position 1"));
    }
  }
  EXPECT_THROW(model.forward(Tokens{1, 3, {0}}), InvalidInput);
}

TEST(DecodeGreedily, ExtendsThePromptByTheLargestLogit) {
  const Geometry g = variants()[1].geometry;
  const ReferenceModel model(g, make_weights(g, WeightStyle::powered, 1, DType::f32), Arithmetic::native,
                             contract_for(g));
  const auto decoded = decode_greedily(model, {3, 1, 4}, 12);
  ASSERT_EQ(decoded.size(), 12U);
  EXPECT_EQ(std::vector<std::int32_t>(decoded.begin(), decoded.begin() + 3),
            (std::vector<std::int32_t>{3, 1, 4}));
  const Tensor logits = model.forward(Tokens{1, 12, decoded});
  for (std::int64_t i = 2; i < 11; ++i) {
    const auto row =
        logits.f32().subspan(static_cast<std::size_t>(i * g.vocab), static_cast<std::size_t>(g.vocab));
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), decoded[static_cast<std::size_t>(i + 1)]);
  }
}

}  // namespace
}  // namespace shardcheck
