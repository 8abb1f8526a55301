#include "shardcheck/model/reference_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

/// Models that are no Llama. Four heads: a power of two, for the slopes of ALiBi.
std::vector<Variant> families() {
  Geometry llama;
  llama.d_model = 40, llama.n_layers = 2, llama.n_heads = 4, llama.n_kv_heads = 2, llama.head_dim = 8,
  llama.ffn = 56, llama.vocab = 61;
  Geometry gpt2 = llama;
  gpt2.norm = Norm::layer, gpt2.activation = Activation::gelu_tanh, gpt2.gated = false;
  gpt2.mlp_bias = gpt2.qkv_bias = gpt2.o_bias = gpt2.tied = true;
  gpt2.positions = 19, gpt2.n_kv_heads = 4;
  Geometry neox = gpt2;
  neox.activation = Activation::gelu, neox.rope = Rope::half, neox.positions = 0, neox.tied = false;
  neox.parallel_residual = true, neox.rotary_dim = 4;
  Geometry bloom = gpt2;
  bloom.alibi = true, bloom.positions = 0;
  Geometry gated = llama;
  gated.activation = Activation::gelu_tanh, gated.mlp_bias = true, gated.norm = Norm::layer;
  Geometry sinks = llama;
  sinks.sinks = sinks.o_bias = sinks.qkv_bias = true, sinks.rope = Rope::half;
  Geometry mixtral = llama;
  mixtral.rope = Rope::half, mixtral.n_experts = 5, mixtral.expert_ffn = 24;
  Geometry deepseek = mixtral;
  deepseek.n_layers = 3, deepseek.dense_layers = 1, deepseek.experts_per_token = 3;
  deepseek.shared_ffn = 16, deepseek.router_bias = true;
  Geometry every = mixtral;
  every.experts_per_token = 9;  // more than there are: all of them
  return {{"gpt2", gpt2},   {"neox", neox},       {"bloom", bloom},       {"gated", gated},
          {"sinks", sinks}, {"mixtral", mixtral}, {"deepseek", deepseek}, {"every", every}};
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

TEST(ReferenceModel, RunsEveryFamilyAsAnIndependentForwardInDoublePrecision) {
  for (const auto& [name, geometry] : families()) {
    for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree, Arithmetic::exact})
      EXPECT_LT(worst_against_naive(geometry, arithmetic), 5e-5) << name << " " << to_string(arithmetic);
  }
}

/// Every weight of a family, zeroed one at a time, is missed: no tensor is read and ignored.
TEST(ReferenceModel, ReadsEveryTensorOfEveryFamily) {
  for (const auto& [name, g] : families()) {
    const auto weights = make_weights(g, WeightStyle::powered, 11, DType::f32);
    const Tokens tokens = make_tokens(g, 2, 19, 12);
    const Tensor right = ReferenceModel(g, weights, Arithmetic::native, contract_for(g)).forward(tokens);
    for (const LogicalTensor& tensor : logical_tensors(g)) {
      TensorMap without = weights;
      without[tensor.name] = Tensor::zeros(DType::f32, tensor.shape);
      const Tensor wrong = ReferenceModel(g, without, Arithmetic::native, contract_for(g)).forward(tokens);
      EXPECT_FALSE(wrong.same_bytes(right)) << name << " without " << tensor.name;
    }
  }
}

TEST(ReferenceModel, ATokenDoesNotDependOnTheOthersOfItsBatch) {
  for (const auto& [name, g] : families()) {
    const ReferenceModel model(g, make_weights(g, WeightStyle::powered, 11, DType::f32), Arithmetic::tree,
                               contract_for(g));
    const Tokens both = make_tokens(g, 2, 8, 3);
    const Tokens second{1, 8, {both.ids.begin() + 8, both.ids.end()}};
    EXPECT_TRUE(model.forward(both).rows(8, 8).same_bytes(model.forward(second))) << name;
  }
}

TEST(ReferenceModel, StoresActivationsOfEveryFamilyInTheDtypeOfTheContract) {
  for (const auto& [name, g] : families()) {
    const auto weights = make_weights(g, WeightStyle::powered, 11, DType::bf16);
    const Tokens tokens = make_tokens(g, 1, 8, 12);
    const Tensor wide = ReferenceModel(g, weights, Arithmetic::tree, contract_for(g)).forward(tokens);
    const Tensor narrow =
        ReferenceModel(g, weights, Arithmetic::tree, contract_for(g, {.storage = DType::bf16}))
            .forward(tokens);
    EXPECT_FALSE(narrow.same_bytes(wide)) << name;
    for (const float logit : narrow.f32()) ASSERT_TRUE(std::isfinite(logit)) << name;
  }
}

TEST(ReferenceModel, SummationOrdersReachTheDownProjectionsOfExperts) {
  Geometry g = families()[6].geometry;
  g.dense_layers = 0, g.n_layers = 1;
  const auto weights = make_weights(g, WeightStyle::powered, 1, DType::f32);
  const Tokens tokens = make_tokens(g, 1, 12, 2);
  TensorMap without = weights;  // the attention adds nothing, so that only experts can differ
  without["layers.0.o_proj"] = Tensor::zeros(DType::f32, {g.d_model, g.attention_width()});
  const ReferenceModel model(g, without, Arithmetic::native, contract_for(g));
  const Tensor plain = model.forward(tokens);
  const Tensor reordered = model.forward(tokens, {.seed = 5, .parts = 3});
  EXPECT_FALSE(reordered.same_bytes(plain));
  for (std::size_t i = 0; i < plain.f32().size(); ++i) EXPECT_NEAR(plain.f32()[i], reordered.f32()[i], 1e-4);
}

TEST(ReferenceModel, LogSoftmaxIsThatOfTheLogits) {
  const Geometry g = families()[0].geometry;
  const auto weights = make_weights(g, WeightStyle::powered, 11, DType::f32);
  const Tokens tokens = make_tokens(g, 2, 9, 12);
  for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree, Arithmetic::exact}) {
    const ReferenceModel model(g, weights, arithmetic, contract_for(g));
    const Tensor logits = model.forward(tokens), logprobs = model.log_softmax(tokens);
    ASSERT_EQ(logprobs.shape(), logits.shape());
    const auto vocab = static_cast<std::size_t>(g.vocab);
    for (std::size_t i = 0; i < 18; ++i) {
      const auto row = logits.f32().subspan(i * vocab, vocab);
      double sum = 0.0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      for (std::size_t j = 0; j < vocab; ++j)
        EXPECT_NEAR(logprobs.f32()[i * vocab + j], static_cast<double>(row[j]) - std::log(sum), 1e-5);
    }
  }
}

std::string refusal_of_forward(const Geometry& g, const Tokens& tokens) {
  try {
    ReferenceModel(g, make_weights(g, WeightStyle::powered, 1, DType::f32), Arithmetic::native,
                   contract_for(g))
        .forward(tokens);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ReferenceModel, RefusesTokensBeyondItsLearnedPositionsAndLatentAttention) {
  const Geometry gpt2 = families()[0].geometry;
  EXPECT_EQ(refusal_of_forward(gpt2, make_tokens(gpt2, 1, 19, 1)), "accepted");
  EXPECT_THAT(refusal_of_forward(gpt2, make_tokens(gpt2, 1, 20, 1)),
              HasSubstr("length=20 goes beyond the model's learned positions: allowed 1..19"));
  Geometry latent = families()[5].geometry;
  latent.kv_lora = 8, latent.nope_dim = 4, latent.rope_dim = 4, latent.v_dim = 4;
  EXPECT_THAT(refusal_of_forward(latent, make_tokens(latent, 1, 4, 1)), HasSubstr("kv_lora=8"));
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
