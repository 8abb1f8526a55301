#include "shardcheck/mutators/relabelling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_cases.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

using testing::HasSubstr;

/// 8 query heads over 4 KV heads, ffn 40, 2 layers.
const Geometry& geometry() {
  static const Geometry g = hand_picked("seed", "seed").geometry;
  return g;
}

std::string refusal_of(const LayerRelabelling& layer, const Geometry& g = geometry()) {
  return why_not_preserved(g, in_every_layer(g, layer));
}

TEST(WhyNotPreserved, AcceptsHeadsThatMoveWithTheirKvHead) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_EQ(refusal_of({.kv_heads = {1, 0, 2, 3}, .heads = {3, 2, 0, 1, 4, 5, 6, 7}}), "");
  EXPECT_EQ(refusal_of({.heads = {1, 0, 3, 2, 5, 4, 7, 6}}), "");
}

TEST(WhyNotPreserved, NamesAHeadThatReadsAnotherKvHead) {
  EXPECT_THAT(refusal_of({.kv_heads = {1, 0, 2, 3}}), HasSubstr("query head 0"));
  EXPECT_THAT(refusal_of({.heads = {0, 2, 1, 3, 4, 5, 6, 7}}), HasSubstr("query head 1"));
}

TEST(WhyNotPreserved, NamesWhatIsNoPermutation) {
  EXPECT_THAT(refusal_of({.kv_heads = {0, 0, 2, 3}}), HasSubstr("KV heads 0,0,2,3"));
  EXPECT_THAT(refusal_of({.ffn = {1, 0}}), HasSubstr("no permutation of 40"));
  EXPECT_THAT(refusal_of({.heads = {-1, 1, 2, 3, 4, 5, 6, 7}}), HasSubstr("query heads"));
}

TEST(WhyNotPreserved, HeadsWithSlopesKnowTheirPlace) {
  Geometry g = geometry();
  g.alibi = true;
  g.rope = Rope::none;
  EXPECT_THAT(refusal_of({.heads = {1, 0, 3, 2, 5, 4, 7, 6}}, g), HasSubstr("slope"));
  EXPECT_EQ(refusal_of({}, g), "");
}

TEST(Relabelled, MovesRowsOfProducersAndColumnsOfTheConsumer) {
  const Geometry& g = geometry();
  const TensorMap before = make_weights(g, WeightStyle::fingerprint, 0, DType::f32);
  const TensorMap after =
      relabelled(g, before, {{}, {.kv_heads = {1, 0, 2, 3}, .heads = {2, 3, 0, 1, 4, 5, 6, 7}}});
  for (const auto& [name, tensor] : before) {
    const bool moved =
        name.starts_with("layers.1.") &&
        (name.ends_with(".q") || name.ends_with(".k") || name.ends_with(".v") || name.ends_with("q_bias") ||
         name.ends_with("k_bias") || name.ends_with("v_bias") || name.ends_with("o_proj"));
    EXPECT_EQ(!tensor.same_bytes(after.at(name)), moved) << name;
  }
  const Tensor& q = before.at("layers.1.q");
  EXPECT_TRUE(after.at("layers.1.q").rows(0, 12).same_bytes(q.rows(12, 12))) << "two heads of six rows";
  const Tensor& o = before.at("layers.1.o_proj");
  EXPECT_EQ(after.at("layers.1.o_proj").bits(o.dim(1) + 12), o.bits(o.dim(1))) << "second row, column 12";
}

TEST(Relabelled, RefusesWhatChangesTheFunction) {
  const TensorMap weights = make_weights(geometry(), WeightStyle::fingerprint, 0, DType::f32);
  EXPECT_THROW(relabelled(geometry(), weights, {{.kv_heads = {1, 0, 2, 3}}}), InvalidInput);
}

TEST(Moves, SpeaksOfTheCarriersAlone) {
  const LayerRelabelling layer{.ffn = {1, 0}};
  for (const char* role : {"gate", "up", "down"}) EXPECT_TRUE(moves(layer, role)) << role;
  for (const char* role : {"q", "o_proj", "down_bias", "ffn_norm"}) EXPECT_FALSE(moves(layer, role)) << role;
}

TEST(Describe, WritesOrdersAsRangesWithTheirCarriers) {
  EXPECT_EQ(describe(in_every_layer(geometry(), {})), "");
  EXPECT_EQ(describe({{}, {.kv_heads = {2, 3, 0, 1}}}), "KV heads 2-3,0-1 in rows of k, k_bias, v, v_bias");
  EXPECT_THAT(describe(in_every_layer(geometry(), {.ffn = {1, 2, 0}})),
              testing::AllOf(HasSubstr("FFN channels 1-2,0 in rows of gate"),
                             HasSubstr("columns of down (in 2 layers)")));
}

}  // namespace
}  // namespace shardcheck
