#include "shardcheck/model/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

std::string refusal(const Geometry& geometry) {
  try {
    validate(geometry);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Geometry, RecordedConfigurationsAreTheSeedDocuments) {
  const Geometry g = toy();
  EXPECT_EQ(g.d_model, 256);
  EXPECT_EQ(g.n_layers, 4);
  EXPECT_EQ(g.n_heads, 8);
  EXPECT_EQ(g.n_kv_heads, 2);
  EXPECT_EQ(g.head_dim, 32);
  EXPECT_EQ(g.ffn, 704);
  EXPECT_EQ(g.vocab, 32000);
  EXPECT_EQ(g.norm_eps, 1e-6);
  EXPECT_EQ(g.rope, Rope::none);
  EXPECT_FALSE(g.tied || g.qkv_bias || g.qk_norm);
  Geometry four = g;
  four.n_kv_heads = 4;
  EXPECT_EQ(toy_kv4(), four);
  EXPECT_EQ(refusal(g), "accepted");
}

TEST(Geometry, ToyHasTheSeedsParameterCount) {
  std::int64_t parameters = 0;
  for (const auto& tensor : logical_tensors(toy())) parameters += element_count(tensor.shape);
  EXPECT_NEAR(static_cast<double>(parameters), 19.2e6, 0.05e6);
}

TEST(Geometry, RefusesEachBadFieldByName) {
  const std::vector<std::pair<std::function<void(Geometry&)>, std::string>> bad = {
      {[](Geometry& g) { g.d_model = 0; }, "d_model=0"},
      {[](Geometry& g) { g.n_layers = -1; }, "layers=-1"},
      {[](Geometry& g) { g.n_heads = 7; }, "heads=7 is not a multiple of kv_heads=2"},
      {[](Geometry& g) { g.n_kv_heads = 16; }, "kv_heads=16"},
      {[](Geometry& g) { g.head_dim = 0; }, "head_dim=0"},
      {[](Geometry& g) { g.ffn = std::int64_t{1} << 40; }, "ffn=1099511627776"},
      {[](Geometry& g) { g.vocab = 0; }, "vocab=0"},
      {[](Geometry& g) { g.norm_eps = 0; }, "norm_eps=0"},
      {[](Geometry& g) { g.norm_eps = 1e-46; }, "norm_eps=1e-46"},
      {[](Geometry& g) { g.rope_theta = -1; }, "rope_theta=-1"},
      {[](Geometry& g) { g.rope = Rope::half, g.head_dim = 3; }, "head_dim=3 is odd"},
      {[](Geometry& g) { g.head_dim = 1 << 23; }, "heads*head_dim"},
      {[](Geometry& g) { g.n_experts = 1 << 16, g.n_layers = 17, g.expert_ffn = g.d_model = g.ffn = 1; },
       "experts=65536 in layers=17 are out of range: allowed 1048576 in all"},
      {[](Geometry& g) { g.experts_per_token = 0; }, "experts_per_token=0 is out of range: allowed 1..65536"},
      {[](Geometry& g) { g.positions = -1; }, "positions=-1"},
      {[](Geometry& g) { g.positions = (1 << 24) + 1; }, "positions=16777217"},
      {[](Geometry& g) { g.d_model = g.ffn = g.vocab = 1 << 24; }, "parameters"},
  };
  for (const auto& [spoil, expected] : bad) {
    Geometry g = toy();
    spoil(g);
    EXPECT_THAT(refusal(g), HasSubstr(expected));
  }
}

TEST(Geometry, AlibiGoesWithEveryKindOfPosition) {
  Geometry g = toy();
  g.alibi = true, g.rope = Rope::half, g.positions = 32, g.sinks = true;
  EXPECT_EQ(refusal(g), "accepted");
}

TEST(RequireForward, RefusesLatentAttentionAlone) {
  Geometry g = toy();
  g.norm = Norm::layer, g.activation = Activation::gelu, g.gated = false,
  g.mlp_bias = g.sinks = g.alibi = true;
  g.positions = 64, g.n_experts = 4, g.expert_ffn = 8, g.shared_ffn = 8, g.router_bias = true;
  EXPECT_NO_THROW(require_forward(g));
  g.kv_lora = 16;
  EXPECT_THROW(require_forward(g), InvalidInput);
}

TEST(LogicalTensors, AreUniqueAndFollowTheFlags) {
  Geometry g = toy();
  std::set<std::string> plain;
  for (const auto& tensor : logical_tensors(g)) EXPECT_TRUE(plain.insert(tensor.name).second) << tensor.name;
  EXPECT_EQ(plain.size(), 3U + 4U * 9U);
  g.tied = true;
  EXPECT_EQ(logical_tensors(g).size(), plain.size() - 1);
  g.qkv_bias = true;
  EXPECT_EQ(logical_tensors(g).size(), plain.size() - 1 + 4U * 3U);
  g.qk_norm = true;
  EXPECT_EQ(logical_tensors(g).size(), plain.size() - 1 + 4U * 5U);
}

}  // namespace
}  // namespace shardcheck
