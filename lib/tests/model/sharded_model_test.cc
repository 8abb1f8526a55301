#include "shardcheck/model/sharded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "shardcheck/model/reference_model.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

/// 60 KV heads' worth of divisors in a small model: degrees 1, 2, 3, 4, 5, 6, 10, 12.
Geometry wide_choice() {
  Geometry g;
  g.d_model = 44, g.n_layers = 2, g.n_heads = 60, g.n_kv_heads = 60, g.head_dim = 2, g.ffn = 120,
  g.vocab = 101;
  g.rope = Rope::half;
  return g;
}

struct Problem {
  Problem(const Geometry& g, std::uint64_t seed)
      : geometry(g),
        weights(make_weights(g, WeightStyle::powered, seed, DType::f32)),
        tokens(make_tokens(g, 2, 17, seed + 1)),
        contract(contract_for(g)) {}

  Tensor reference(Arithmetic arithmetic) const {
    return ReferenceModel(geometry, weights, arithmetic, contract).forward(tokens);
  }
  std::vector<Tensor> sharded(const std::string& table, int degree, Arithmetic arithmetic) const {
    const Layout layout = LayoutTable::built_in(table).instantiate(geometry, degree);
    const auto collective = make_in_process_collective(degree);
    return ShardedModel(geometry, split(weights, layout), consumer_named(layout.consumer), *collective,
                        arithmetic, contract)
        .forward(tokens);
  }

  Geometry geometry;
  TensorMap weights;
  Tokens tokens;
  Contract contract;
};

TEST(ShardedModel, TreeIsBitIdenticalAtEveryDegree) {
  const Problem problem(wide_choice(), 3);
  const Tensor reference = problem.reference(Arithmetic::tree);
  for (const int degree : {1, 2, 3, 4, 5, 6, 10, 12}) {
    for (const Tensor& logits : problem.sharded("seed", degree, Arithmetic::tree)) {
      EXPECT_TRUE(logits.same_bytes(reference)) << "degree " << degree;
    }
  }
}

TEST(ShardedModel, TreeIsBitIdenticalForSevenRanks) {
  Geometry g = wide_choice();
  g.n_heads = 28, g.n_kv_heads = 7, g.head_dim = 4, g.ffn = 7 * 18, g.qkv_bias = true, g.qk_norm = true;
  const Problem problem(g, 4);
  for (const int degree : {1, 7}) {
    EXPECT_TRUE(
        problem.sharded("seed", degree, Arithmetic::tree)[0].same_bytes(problem.reference(Arithmetic::tree)));
  }
}

TEST(ShardedModel, TreeIsBitIdenticalBeyondSixteenRanks) {
  Geometry g = wide_choice();
  g.n_heads = g.n_kv_heads = 34, g.ffn = 68;
  const Problem problem(g, 4);
  for (const int degree : {17, 34}) {
    EXPECT_TRUE(
        problem.sharded("seed", degree, Arithmetic::tree)[0].same_bytes(problem.reference(Arithmetic::tree)));
  }
}

/// ceil(vocab / t) rows each: the first ranks may hold everything and the others nothing.
TEST(ShardedModel, RanksWithoutVocabularyRowsTakePartInTheCollectives) {
  Geometry g = wide_choice();
  for (const std::int64_t vocab : {1, 2, 3}) {
    g.vocab = vocab;
    const Problem problem(g, 4);
    for (const int degree : {2, 4}) {
      for (const Tensor& logits : problem.sharded("seed", degree, Arithmetic::tree)) {
        EXPECT_TRUE(logits.same_bytes(problem.reference(Arithmetic::tree))) << vocab << " on " << degree;
      }
    }
  }
}

TEST(ShardedModel, NativeIsCloseAndExactAtOneRank) {
  const Problem problem(wide_choice(), 5);
  const Tensor reference = problem.reference(Arithmetic::native);
  EXPECT_TRUE(problem.sharded("seed", 1, Arithmetic::native)[0].same_bytes(reference));
  for (const int degree : {2, 3, 5}) {
    const Tensor logits = problem.sharded("seed", degree, Arithmetic::native)[0];
    EXPECT_FALSE(logits.same_bytes(reference)) << "a sum cut at other places should round differently";
    for (std::size_t i = 0; i < reference.f32().size(); ++i) {
      ASSERT_NEAR(logits.f32()[i], reference.f32()[i], 1e-3) << "degree " << degree;
    }
  }
}

TEST(ShardedModel, EveryFrameworkConventionRunsTheSameFunction) {
  Geometry g = wide_choice();
  g.vocab = 120;
  for (const bool tied : {false, true}) {
    g.tied = tied;
    const Problem problem(g, 6);
    const Tensor reference = problem.reference(Arithmetic::tree);
    for (const std::string table : {"seed", "hf-llama", "vllm-llama"}) {
      for (const int degree : {2, 3}) {
        for (const Tensor& logits : problem.sharded(table, degree, Arithmetic::tree)) {
          EXPECT_TRUE(logits.same_bytes(reference)) << table << " degree " << degree << " tied " << tied;
        }
      }
    }
  }
}

/// A table that cuts fused qkv as one block, run under the right convention.
TEST(ShardedModel, AWrongTableUnderTheRightConventionGivesWrongLogits) {
  Geometry g = wide_choice();
  g.n_heads = 12, g.n_kv_heads = 4, g.head_dim = 8;
  const Problem problem(g, 7);
  const Layout right = LayoutTable::built_in("seed").instantiate(g, 2);
  auto shards = split(problem.weights, right);
  for (const auto& entry : right.entries) {
    if (!entry.name.ends_with(".qkv")) continue;
    const PlacedTensor contiguous(entry.name, entry.placed.shape(), Shard{0, SplitPolicy::even}, 2);
    shards[entry.name] = split_tensor(contiguous, fuse(entry, problem.weights));
  }
  const auto collective = make_in_process_collective(2);
  const Tensor logits =
      ShardedModel(g, shards, consumer_named("seed"), *collective, Arithmetic::tree, problem.contract)
          .forward(problem.tokens)[0];
  const Tensor reference = problem.reference(Arithmetic::tree);
  double worst = 0.0;
  for (std::size_t i = 0; i < reference.f32().size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(logits.f32()[i] - reference.f32()[i])));
  }
  EXPECT_GT(worst, 0.1);
}

TEST(ShardedModel, RefusesShardsThatDoNotFitItsConvention) {
  const Problem problem(wide_choice(), 8);
  const Layout layout = LayoutTable::built_in("seed").instantiate(problem.geometry, 2);
  const auto collective = make_in_process_collective(2);
  const auto refusal = [&](const ShardedTensors& shards) {
    try {
      const ShardedModel model(problem.geometry, shards, consumer_named("seed"), *collective,
                               Arithmetic::native, problem.contract);
    } catch (const InvalidShards& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto right = split(problem.weights, layout);
  EXPECT_EQ(refusal(right), "accepted");
  auto missing = right;
  missing.erase("layers.1.down");
  EXPECT_THAT(refusal(missing), HasSubstr("layers.1.down"));
  auto few = right;
  few["layers.0.qkv"].pop_back();
  EXPECT_THAT(refusal(few), HasSubstr("got 1 shards"));
  auto misshapen = right;
  misshapen["layers.0.o_proj"][1] = Tensor::zeros(DType::f32, {44, 44});
  EXPECT_THAT(refusal(misshapen), HasSubstr("rank 1 of 2 holds shape [44, 44]"));
  auto mistyped = right;
  mistyped["final_norm"][0] = Tensor::zeros(DType::i32, {44});
  EXPECT_THAT(refusal(mistyped), HasSubstr("i32"));
}

TEST(ShardedModel, UnsupportedDegreesAreRefusedBeforeTheShardsAreRead) {
  const auto collective = make_in_process_collective(4);
  EXPECT_THROW(
      ShardedModel(toy(), {}, consumer_named("seed"), *collective, Arithmetic::native, contract_for(toy())),
      UnsupportedLayout);
}

class CountingCollective final : public Collective {
 public:
  explicit CountingCollective(int degree) : inner_(make_in_process_collective(degree)) {}
  int degree() const override { return inner_->degree(); }
  std::span<const int> local_ranks() const override { return inner_->local_ranks(); }
  void all_reduce_sum(std::span<const std::span<float>> b) override { ++sums, inner_->all_reduce_sum(b); }
  void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> b) override {
    ++bit_sums, inner_->all_reduce_sum_u32(b);
  }
  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> s,
                                          std::vector<std::size_t>& sizes) override {
    ++gathers;
    return inner_->all_gather_bytes(s, sizes);
  }
  int sums = 0, bit_sums = 0, gathers = 0;

 private:
  std::unique_ptr<Collective> inner_;
};

TEST(ShardedModel, RunsTwoReductionsPerLayerOneEmbeddingAndOneGather) {
  const Problem problem(wide_choice(), 9);
  const Layout layout = LayoutTable::built_in("seed").instantiate(problem.geometry, 3);
  CountingCollective native(3), tree(3);
  const auto shards = split(problem.weights, layout);
  const Consumer& seed = consumer_named("seed");
  ShardedModel(problem.geometry, shards, seed, native, Arithmetic::native, problem.contract)
      .forward(problem.tokens);
  EXPECT_EQ(native.sums, 2 * problem.geometry.n_layers);
  EXPECT_EQ(native.bit_sums, 1);
  EXPECT_EQ(native.gathers, 1);
  ShardedModel(problem.geometry, shards, seed, tree, Arithmetic::tree, problem.contract)
      .forward(problem.tokens);
  EXPECT_EQ(tree.sums, 0) << "tree moves bytes and adds nothing in the collective";
  EXPECT_EQ(tree.gathers, 1 + 2 * problem.geometry.n_layers);
}

}  // namespace
}  // namespace shardcheck
