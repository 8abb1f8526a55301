#include "layout_probe.h"

#include <gtest/gtest.h>

namespace shardcheck {
namespace {

bool runs(const char* layout, const Geometry& geometry) {
  return is_runnable(parse_layout_name(layout), geometry);
}

TEST(IsRunnable, FollowsTheAxesOfTheConsumer) {
  EXPECT_TRUE(runs("seed:pp2,cp2,tp2", toy()));
  EXPECT_TRUE(runs("megatron-llama:cp2,tp2", toy()));
  EXPECT_FALSE(runs("megatron-llama:pp2,tp2", toy()));
  EXPECT_FALSE(runs("megatron-llama:dp2", toy()));
  EXPECT_FALSE(runs("hf-llama:cp2", toy())) << "the table does not carry the axis";
  EXPECT_FALSE(runs("hf-phi3", toy())) << "no consumer";
}

TEST(IsRunnable, FollowsTheDegreesOfTheGeometry) {
  EXPECT_FALSE(runs("seed:cp2,tp4", toy())) << "two KV heads";
  EXPECT_TRUE(runs("seed:cp2,tp4", toy_kv4()));
  EXPECT_FALSE(runs("seed:pp3", toy())) << "four layers in even stages";
  EXPECT_TRUE(runs("seed:pp3,first2", toy()));
  Geometry experts = toy();
  experts.n_experts = 4, experts.expert_ffn = 6;
  EXPECT_TRUE(runs("seed:ep4,tp2", experts));
  EXPECT_FALSE(runs("seed:ep3", experts));
  experts.expert_ffn = 7;
  EXPECT_FALSE(runs("seed:tp2", experts));
}

}  // namespace
}  // namespace shardcheck
