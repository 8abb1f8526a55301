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
  Problem(const Geometry& g, std::uint64_t seed, DType dtype = DType::f32)
      : geometry(g),
        weights(make_weights(g, WeightStyle::powered, seed, dtype)),
        tokens(make_tokens(g, 2, 17, seed + 1)),
        contract(contract_for(g, {.storage = dtype})) {}

  Tensor reference(Arithmetic arithmetic) const {
    return ReferenceModel(geometry, weights, arithmetic, contract).forward(tokens);
  }
  std::vector<Tensor> sharded(const std::string& table, int degree, Arithmetic arithmetic) const {
    const Layout layout = LayoutTable::built_in(table).instantiate(geometry, degree);
    const auto collective = make_in_process_collective(degree);
    return ShardedModel(geometry, split(weights, layout), consumer_named(layout.consumer), *collective,
                        arithmetic, contract, right_steps(), exchange)
        .forward(tokens);
  }

  Geometry geometry;
  TensorMap weights;
  Tokens tokens;
  Contract contract;
  CoverExchange exchange = CoverExchange::automatic;
};

double max_abs_difference(const Tensor& a, const Tensor& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.f32().size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a.f32()[i]) - b.f32()[i]));
  return largest;
}

TEST(ShardedModel, TreeIsBitIdenticalAtEveryDegree) {
  const Problem problem(wide_choice(), 3);
  const Tensor reference = problem.reference(Arithmetic::tree);
  for (const int degree : {1, 2, 3, 4, 5, 6, 10, 12}) {
    for (const Tensor& logits : problem.sharded("seed", degree, Arithmetic::tree)) {
      EXPECT_TRUE(logits.same_bytes(reference)) << "degree " << degree;
    }
  }
}

TEST(ShardedModel, SixteenBitModelsRoundAtTheSamePlacesAtEveryDegree) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Problem problem(wide_choice(), 5, dtype);
    for (const Arithmetic arithmetic : {Arithmetic::tree, Arithmetic::exact}) {
      const Tensor reference = problem.reference(arithmetic);
      for (const int degree : {1, 2, 3, 5, 12}) {
        EXPECT_TRUE(problem.sharded("seed", degree, arithmetic)[0].same_bytes(reference))
            << short_name(dtype) << " degree " << degree;
      }
    }
  }
}

TEST(ShardedModel, SixteenBitActivationsAreStoredInTheirDtype) {
  const Problem wide(wide_choice(), 5, DType::bf16);
  Contract f32 = wide.contract;
  f32.storage = DType::f32;
  const Tensor unrounded =
      ReferenceModel(wide.geometry, wide.weights, Arithmetic::tree, f32).forward(wide.tokens);
  EXPECT_FALSE(wide.reference(Arithmetic::tree).same_bytes(unrounded));
}

TEST(ShardedModel, ExactIsBitIdenticalAtEveryDegree) {
  const Problem problem(wide_choice(), 6);
  const Tensor reference = problem.reference(Arithmetic::exact);
  for (const int degree : {1, 2, 3, 4, 5, 6, 10, 12}) {
    for (const Tensor& logits : problem.sharded("seed", degree, Arithmetic::exact))
      EXPECT_TRUE(logits.same_bytes(reference)) << "degree " << degree;
  }
}

TEST(ShardedModel, LinearTreesAndNarrowLeavesKeepTheBitsToo) {
  for (const TreeShape shape : {TreeShape::halving, TreeShape::linear}) {
    Problem problem(wide_choice(), 7);
    problem.contract = contract_for(problem.geometry, {.shape = shape, .leaf = 5, .key_block = 3});
    const Tensor reference = problem.reference(Arithmetic::tree);
    for (const int degree : {2, 3, 12})
      EXPECT_TRUE(problem.sharded("seed", degree, Arithmetic::tree)[0].same_bytes(reference)) << degree;
  }
}

TEST(ShardedModel, OneShotAndTwoShotsGiveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Geometry g = wide_choice();
    g.o_bias = g.qkv_bias = true;
    Problem problem(g, 8, dtype);
    for (const int degree : {2, 3, 5}) {
      problem.exchange = CoverExchange::one_shot;
      const Tensor one = problem.sharded("seed", degree, Arithmetic::tree)[0];
      problem.exchange = CoverExchange::two_shot;
      for (const Tensor& two : problem.sharded("seed", degree, Arithmetic::tree))
        EXPECT_TRUE(two.same_bytes(one)) << short_name(dtype) << " degree " << degree;
    }
  }
}

TEST(ShardedModel, TwoShotsSendFewerBytesFromFourRanksOn) {
  const Problem problem(wide_choice(), 9);
  for (const int degree : {4, 12}) {
    std::int64_t bytes[2];
    for (const CoverExchange exchange : {CoverExchange::one_shot, CoverExchange::two_shot}) {
      const auto collective = make_in_process_collective(degree);
      const Layout layout = LayoutTable::built_in("seed").instantiate(problem.geometry, degree);
      ShardedModel(problem.geometry, split(problem.weights, layout), consumer_named("seed"), *collective,
                   Arithmetic::tree, problem.contract, right_steps(), exchange)
          .forward(problem.tokens);
      bytes[exchange == CoverExchange::two_shot] = collective->traffic().bytes;
    }
    EXPECT_LT(bytes[1], bytes[0]) << degree;
  }
}

TEST(ShardedModel, EveryEncodingOfARowParallelBiasGivesTheSameBits) {
  Geometry g = wide_choice();
  g.o_bias = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem(g, 10, dtype);
    for (const Arithmetic arithmetic : {Arithmetic::tree, Arithmetic::exact}) {
      const Tensor reference = problem.reference(arithmetic);
      for (const int degree : {1, 2, 3, 4})
        EXPECT_TRUE(problem.sharded("seed-bias-on-first-rank", degree, arithmetic)[0].same_bytes(reference));
      for (const int degree : {1, 2, 4})
        EXPECT_TRUE(problem.sharded("seed-bias-divided", degree, arithmetic)[0].same_bytes(reference));
    }
    // A third of a bias is not representable: near, not equal.
    const Tensor near = problem.sharded("seed-bias-divided", 3, Arithmetic::native)[0];
    EXPECT_LT(max_abs_difference(near, problem.reference(Arithmetic::native)),
              dtype == DType::f32 ? 1e-3 : 0.5);
  }
}

TEST(ShardedModel, ViewsOfAModelHeldOnceGiveTheBitsOfItsShards) {
  Geometry g = wide_choice();
  g.o_bias = g.qkv_bias = g.qk_norm = true;
  for (const bool tied : {false, true}) {
    g.tied = tied;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Problem problem(g, 11, dtype);
      for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree}) {
        const PackedModel packed(g, problem.weights, arithmetic);
        for (const int degree : {1, 3, 4}) {
          const auto collective = make_in_process_collective(degree);
          const ShardedModel model(packed, *collective, problem.contract);
          EXPECT_TRUE(
              model.forward(problem.tokens)[0].same_bytes(problem.sharded("seed", degree, arithmetic)[0]));
        }
      }
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
  g.vocab = 189;  // padded to 192 where rows are padded, to a multiple of 128 t by Megatron
  for (const bool tied : {false, true}) {
    g.tied = tied;
    const Problem problem(g, 6);
    const Tensor reference = problem.reference(Arithmetic::tree);
    for (const std::string table : {"seed", "vllm-llama", "sglang-llama", "megatron-llama"}) {
      for (const int degree : {2, 3}) {
        for (const Tensor& logits : problem.sharded(table, degree, Arithmetic::tree)) {
          EXPECT_TRUE(logits.same_bytes(reference)) << table << " degree " << degree << " tied " << tied;
        }
      }
    }
  }
}

/// Tables that cut the vocabulary evenly.
TEST(ShardedModel, EvenVocabulariesRunTheSameFunctionToo) {
  Geometry g = wide_choice();
  g.vocab = 120;
  for (const bool tied : {false, true}) {
    g.tied = tied;
    const Problem problem(g, 6);
    const Tensor reference = problem.reference(Arithmetic::tree);
    for (const std::string table : {"hf-llama", "torchtitan-llama"}) {
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

class CountingCollective final : public CollectiveDecorator {
 public:
  explicit CountingCollective(int degree) : CollectiveDecorator(make_in_process_collective(degree)) {}
  void all_reduce_sum(std::span<const std::span<float>> b) override { ++sums, inner().all_reduce_sum(b); }
  void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> b) override {
    ++bit_sums, inner().all_reduce_sum_u32(b);
  }
  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> s,
                                          std::vector<std::size_t>& sizes) override {
    ++gathers;
    return inner().all_gather_bytes(s, sizes);
  }
  int sums = 0, bit_sums = 0, gathers = 0;
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
