#include "shardcheck/arithmetic/contract.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace shardcheck {
namespace {

// Every rank boundary of a sum of length k at every degree is a multiple of the leaf.
void expect_divides_boundaries(std::int64_t leaf, std::int64_t k, const std::vector<int>& degrees) {
  for (const int degree : degrees) {
    for (int rank = 0; rank <= degree; ++rank)
      EXPECT_EQ(k / degree * rank % leaf, 0) << leaf << ' ' << degree;
  }
}

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

void expect_names(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST(LeafWidth, DividesEveryRankBoundary) {
  for (const std::int64_t k : {1, 7, 64, 176, 256, 704, 720, 4096, 14336}) {
    std::vector<int> degrees;
    for (int degree = 1; degree <= 16; ++degree) {
      if (k % degree == 0) degrees.push_back(degree);
    }
    const std::int64_t leaf = leaf_width(k, degrees);
    expect_divides_boundaries(leaf, k, degrees);
    EXPECT_LE(leaf, 128);
  }
}

TEST(LeafWidth, IsTheLargestThatWillDo) {
  EXPECT_EQ(leaf_width(256, {1}), 128);
  EXPECT_EQ(leaf_width(256, {1, 2, 4}), 64);
  EXPECT_EQ(leaf_width(704, {1, 2, 4}), 88);
  EXPECT_EQ(leaf_width(704, {1, 2, 4}, 50), 44);
  EXPECT_EQ(leaf_width(720, {3, 5}), 48);
  EXPECT_EQ(leaf_width(100, {}, 1000), 100);
}

TEST(LeafWidth, RefusesBadDegreesByName) {
  expect_names(refusal([] { leaf_width(256, {2, 3}); }), {"degree 3", "256"});
  expect_names(refusal([] { leaf_width(256, {0}); }), {"degree 0"});
  expect_names(refusal([] { leaf_width(256, {-2}); }), {"degree -2"});
  expect_names(refusal([] { leaf_width(0, {1}); }), {"length 0"});
  expect_names(refusal([] { leaf_width(8, {1}, 0); }), {"limit 0"});
}

TEST(ContractFor, HasTheDegreesThatHeadsAndFfnDivideBy) {
  EXPECT_EQ(contract_for(toy()).degrees, (std::vector<int>{1, 2}));
  EXPECT_EQ(contract_for(toy_kv4()).degrees, (std::vector<int>{1, 2, 4}));
}

TEST(ContractFor, CutsNoLeafAtAnyDegree) {
  for (const Geometry& geometry : {toy(), toy_kv4()}) {
    const Contract contract = contract_for(geometry);
    expect_divides_boundaries(contract.leaf_attention, geometry.attention_width(), contract.degrees);
    expect_divides_boundaries(contract.leaf_ffn, geometry.ffn, contract.degrees);
    expect_divides_boundaries(contract.leaf_d_model, geometry.d_model, {1});
  }
}

TEST(ContractFor, TakesGivenDegreesInAnyOrder) {
  const Contract contract = contract_for(toy(), {.degrees = {4, 1, 4, 2}});
  EXPECT_EQ(contract.degrees, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(contract.text(),
            "halving degrees=1,2,4 leaf.d_model=128 leaf.attention=64 leaf.ffn=88 key_block=64 storage=f32");
}

TEST(ContractFor, RefusesDegreesThatCutAHeadOrAChannel) {
  expect_names(refusal([] { contract_for(toy(), {.degrees = {1, 3}}); }), {"degree 3", "n_heads=8"});
  expect_names(refusal([] { contract_for(toy(), {.degrees = {0}}); }), {"degree 0"});
  Geometry odd = toy();
  odd.ffn = 705;
  expect_names(refusal([&] { contract_for(odd, {.degrees = {2}}); }), {"degree 2", "ffn=705"});
}

TEST(ContractFor, FollowsEveryChoice) {
  const Contract contract = contract_for(
      toy(),
      {.shape = TreeShape::linear, .degrees = {1, 2}, .leaf = 40, .key_block = 16, .storage = DType::bf16});
  EXPECT_EQ(contract.text(),
            "linear degrees=1,2 leaf.d_model=32 leaf.attention=32 leaf.ffn=32 key_block=16 storage=bf16");
  expect_names(refusal([] { contract_for(toy(), {.leaf = 0}); }), {"limit 0"});
  expect_names(refusal([] { contract_for(toy(), {.key_block = 0}); }), {"key_block 0"});
  expect_names(refusal([] { contract_for(toy(), {.storage = DType::i32}); }), {"i32", "f32, bf16, f16"});
}

TEST(ContractHash, FollowsEveryField) {
  const Contract base = contract_for(toy_kv4());
  EXPECT_EQ(base.hash(), contract_for(toy_kv4()).hash());
  Contract changed = base;
  const auto expect_changed = [&] {
    EXPECT_NE(changed.hash(), base.hash()) << changed.text();
    changed = base;
  };
  changed.shape = TreeShape::linear;
  expect_changed();
  changed.degrees = {1};
  expect_changed();
  changed.leaf_d_model = 64;
  expect_changed();
  changed.leaf_attention = 32;
  expect_changed();
  changed.leaf_ffn = 44;
  expect_changed();
  changed.key_block = 32;
  expect_changed();
  changed.storage = DType::bf16;
  expect_changed();
}

}  // namespace
}  // namespace shardcheck
