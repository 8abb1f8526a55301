#include "shardcheck/tolerance/workbench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "small_cases.h"

namespace shardcheck {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Oracle kJudging[] = {Oracle::layout, Oracle::tree, Oracle::native};

/// Ours, with one change to what it delivers.
class Changed final : public Subject {
 public:
  using Change = std::function<void(ShardedTensors&)>;
  explicit Changed(Change change) : change_(std::move(change)) {}
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors delivered = Subject::reshard(shards, source, target);
    change_(delivered);
    return delivered;
  }

 private:
  Change change_;
};

/// Keeps the partial sums of every row-parallel layer.
class NoReduction final : public Subject {
 public:
  const ForwardSteps& steps() const override { return steps_; }

 private:
  struct Steps final : ForwardSteps {
    int reductions(const StepSite&, std::string_view) const override { return 0; }
  } steps_;
};

TEST(OracleNames, AreReadBack) {
  for (const Oracle oracle : {Oracle::layout, Oracle::exact, Oracle::tree, Oracle::native}) {
    EXPECT_EQ(oracle_from(to_string(oracle)), oracle);
  }
  EXPECT_EQ(oracle_from("bytes"), std::nullopt);
}

TEST(WorkbenchJudge, PassesTheLibraryUnderEveryOracle) {
  for (const char* source : {"seed", "seed:tp2", "hf-llama:tp4", "vllm-llama:tp2"}) {
    for (const char* target : {"seed", "seed:tp4", "hf-llama:tp2", "vllm-llama:tp4"}) {
      Workbench bench(small_case(source, target));
      Subject subject;
      for (const Oracle oracle : kJudging) {
        const Outcome outcome = bench.judge(oracle, subject);
        EXPECT_EQ(outcome.verdict, Verdict::passed)
            << source << " -> " << target << " " << to_string(oracle) << ": " << outcome.message;
      }
    }
  }
}

/// Meshes of several axes, between layouts, for a Llama and a mixture of experts.
TEST(WorkbenchJudge, PassesTheLibraryOverMeshesUnderEveryOracle) {
  std::vector<Case> cases = {small_case("seed:tp2", "seed:pp2,cp2,tp2"),
                             small_case("seed:pp2", "seed:cp3,tp4"),
                             small_case("hf-llama:tp2", "megatron-llama:tp2,cp3"),
                             small_case("seed:ep4,tp2", "seed:ep2,tp2"),
                             small_case("seed", "seed:pp2,ep4"),
                             small_case("vllm-moe:ep2,tp2", "seed:tp2,cp2,ep2")};
  for (Case& c : cases) {
    if (c.source.degree("ep") > 1 || c.target.degree("ep") > 1) {
      c.geometry.n_experts = 4, c.geometry.expert_ffn = 16, c.geometry.shared_ffn = 8;
      c.geometry.router_bias = true;
    }
    for (const bool sequence_parallel : {false, true}) {
      c.sequence_parallel = sequence_parallel;
      c.key_block = 8;
      Workbench bench(c);
      Subject subject;
      for (const Oracle oracle : {Oracle::layout, Oracle::tree, Oracle::native, Oracle::exact}) {
        const Outcome outcome = bench.judge(oracle, subject);
        EXPECT_EQ(outcome.verdict, Verdict::passed)
            << print_case(c) << " " << to_string(oracle) << ": " << outcome.message;
      }
    }
  }
}

TEST(WorkbenchJudge, SeesAStageThatReadsAnothersLayer) {
  Workbench bench(small_case("seed", "seed:pp2,tp2"));
  Changed subject([](ShardedTensors& shards) {
    for (const std::size_t rank : {2U, 3U}) {
      Tensor& later = shards.at("layers.1.down").at(rank);
      later = shards.at("layers.0.down").at(rank - 2);
    }
  });
  for (const Oracle oracle : kJudging)
    EXPECT_EQ(bench.judge(oracle, subject).verdict, Verdict::failed) << to_string(oracle);
}

TEST(WorkbenchJudge, OneRankDeviatesByNothing) {
  Workbench bench(small_case("seed:tp2", "seed"));
  Subject subject;
  EXPECT_EQ(bench.judge(Oracle::native, subject).deviation, 0.0);
}

TEST(WorkbenchJudge, ExactTellsABitFromTheReference) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Subject subject;
  EXPECT_EQ(bench.judge(Oracle::exact, subject).verdict, Verdict::passed);
  Changed changed([](ShardedTensors& shards) {
    auto values = shards.at("layers.1.o_proj").at(1).mutable_f32();
    std::swap(values[5], values[18]);
  });
  const Outcome outcome = bench.judge(Oracle::exact, changed);
  EXPECT_EQ(outcome.verdict, Verdict::failed);
  EXPECT_THAT(outcome.message, HasSubstr("differ in their bits"));
}

TEST(LayoutOracle, NamesParameterRankAndOrigins) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) {
    Tensor& shard = shards.at("layers.1.o_proj").at(1);
    const std::uint64_t held = shard.bits(5);
    shard.set_bits(5, shard.bits(18));
    shard.set_bits(18, held);
  });
  const Outcome outcome = bench.judge(Oracle::layout, subject);
  ASSERT_EQ(outcome.verdict, Verdict::failed);
  ASSERT_TRUE(outcome.difference);
  EXPECT_EQ(outcome.difference->parameter, "layers.1.o_proj");
  EXPECT_EQ(outcome.difference->rank, 1);
  EXPECT_EQ(outcome.difference->worst_index, 5);
  EXPECT_EQ(outcome.difference->source_degree, 1);
  EXPECT_EQ(outcome.difference->target_degree, 2);
  // Rank 1 holds columns 16..31 of [24, 32]: local 5 is (0, 21), local 18 is (1, 18).
  EXPECT_EQ(outcome.difference->expected, "layers.1.o_proj[0, 21]");
  EXPECT_EQ(outcome.difference->actual, "layers.1.o_proj[1, 18]");
  EXPECT_THAT(outcome.message, HasSubstr("rank 1 of 2"));
}

TEST(LayoutOracle, NamesMemoryThatNobodyWrote) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) { shards.at("final_norm").at(0).mutable_f32()[3] = 0.0F; });
  const Outcome outcome = bench.judge(Oracle::layout, subject);
  EXPECT_THAT(outcome.message, HasSubstr("no element of the checkpoint"));
}

TEST(LayoutOracle, SaysThatValuesChangedInPlaceWithHowManyAndTheFirst) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c = small_case("seed:tp2", "seed:tp2");
    c.dtype = dtype;
    Workbench bench(c);
    // The lowest bit of a fingerprint turns one element's code into its neighbour's: nothing moved all the
    // same.
    Changed subject([](ShardedTensors& shards) {
      auto bytes = shards.at("layers.1.o_proj").at(1).mutable_bytes();
      const std::size_t element = bytes.size() / (24 * 16);
      for (const std::size_t at : {5UL, 18UL, 383UL}) bytes[at * element] ^= std::byte{1};
    });
    const Outcome outcome = bench.judge(Oracle::layout, subject);
    ASSERT_EQ(outcome.verdict, Verdict::failed);
    EXPECT_THAT(outcome.message,
                HasSubstr("layers.1.o_proj: 3 of 384 values of rank 1 of 2 changed in place"));
    EXPECT_THAT(outcome.message, HasSubstr("the first at local [0, 5] from "));
    const Tensor right = bench.weights().at("layers.1.o_proj").to(DType::f32);
    EXPECT_EQ(outcome.difference->worst_index, 5);
    EXPECT_EQ(outcome.difference->expected, fmt::format("{:.9g}", right.f32()[21]));
    EXPECT_NE(outcome.difference->actual, outcome.difference->expected);
    EXPECT_EQ(outcome.difference->worst_place, "layers.1.o_proj[0, 5]");
  }
}

TEST(LayoutOracle, AScaledValueChangedInPlaceThoughItsFingerprintDecodes) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) { shards.at("final_norm").at(0).mutable_f32()[3] *= 1.5F; });
  EXPECT_THAT(bench.judge(Oracle::layout, subject).message,
              HasSubstr("1 of 24 values of rank 0 of 2 changed"));
}

TEST(LayoutOracle, HoldsA16BitModelAgainstItsOwnBytesToo) {
  Case c = small_case("seed", "seed:tp2");
  c.dtype = DType::bf16;
  Workbench bench(c);
  Subject right;
  EXPECT_EQ(bench.judge(Oracle::layout, right).verdict, Verdict::passed);
  Changed subject([](ShardedTensors& shards) {
    Tensor& shard = shards.at("embed").at(0);
    if (shard.dtype() == DType::bf16) shard.mutable_as<std::uint16_t>()[7] ^= 1;
  });
  const Outcome outcome = bench.judge(Oracle::layout, subject);
  ASSERT_EQ(outcome.verdict, Verdict::failed);
  EXPECT_EQ(outcome.difference->parameter, "embed");
}

TEST(LogitOracles, ReportTheDeviationAndTheThreshold) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) {
    std::swap(shards.at("layers.0.down")[0], shards.at("layers.0.down")[1]);
  });
  const Outcome native = bench.judge(Oracle::native, subject);
  EXPECT_EQ(native.verdict, Verdict::failed);
  EXPECT_GT(native.deviation, 1000 * native.threshold);
  EXPECT_EQ(native.threshold, bench.threshold().value);
  const Outcome tree = bench.judge(Oracle::tree, subject);
  EXPECT_EQ(tree.verdict, Verdict::failed);
  EXPECT_EQ(tree.threshold, 0.0);
  EXPECT_THAT(tree.message, HasSubstr("differ in their bits"));
  const std::int64_t worst = tree.difference->worst_index;
  EXPECT_EQ(tree.difference->worst_place, fmt::format("logits[{}, {}]", worst / 52, worst % 52));
}

TEST(LogitOracles, NaNIsInfinitelyFar) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) {
    shards.at("final_norm")[1].mutable_f32()[0] = std::numeric_limits<float>::quiet_NaN();
  });
  for (const Oracle oracle : {Oracle::tree, Oracle::native}) {
    const Outcome outcome = bench.judge(oracle, subject);
    EXPECT_EQ(outcome.verdict, Verdict::failed);
    EXPECT_TRUE(std::isinf(outcome.deviation));
  }
}

TEST(LogitOracles, NameARankThatDisagrees) {
  // A tied head that every rank holds whole: its logits are the rank's own.
  Case c = small_case("seed", "hf-llama:tp2");
  c.geometry.tied = true;
  Workbench bench(c);
  NoReduction subject;
  for (const Oracle oracle : {Oracle::tree, Oracle::native}) {
    const Outcome outcome = bench.judge(oracle, subject);
    EXPECT_EQ(outcome.verdict, Verdict::failed);
    EXPECT_THAT(outcome.message, HasSubstr("rank 1 disagrees with rank 0"));
  }
}

// Every rank scales its logits a little, one of them a lot.
TEST(LogitOracles, TheFarthestOfAllRanksIsNamedWithItsDeviation) {
  Case c = small_case("seed", "hf-llama:tp4");
  c.geometry.tied = true;
  Workbench bench(c);
  for (const std::size_t far : {0U, 1U, 2U, 3U}) {
    Changed subject([&](ShardedTensors& shards) {
      std::vector<Tensor>& norms = shards.at("model.norm.weight");
      for (std::size_t rank = 0; rank < norms.size(); ++rank) {
        for (float& weight : norms[rank].mutable_f32()) weight *= rank == far ? 3.0F : 1.0F + 0x1p-10F;
      }
    });
    for (const Oracle oracle : {Oracle::tree, Oracle::native}) {
      const Outcome outcome = bench.judge(oracle, subject);
      ASSERT_EQ(outcome.verdict, Verdict::failed);
      EXPECT_EQ(outcome.difference->rank, static_cast<int>(far));
      double largest = 0.0;
      for (const float logit : bench.reference(Arithmetic::native).f32()) {
        largest = std::max(largest, std::fabs(static_cast<double>(logit)));
      }
      EXPECT_NEAR(outcome.deviation, 2 * largest, 1e-3 * largest);
    }
  }
}

// A model whose attention adds nothing to its logits: no threshold could show that it is wrong.
TEST(LogitOracles, WhereTheControlWouldPassNativeIsMistrustedAndTreeJudges) {
  const Case c = small_case("seed", "seed:tp2");
  TensorMap weights = make_weights(c.geometry, c.weights, c.seed, c.dtype);
  for (auto& [name, tensor] : weights) {
    if (name.ends_with(".o_proj")) tensor = Tensor::zeros(tensor.dtype(), tensor.shape());
  }
  Workbench bench(c, weights, make_tokens(c.geometry, c.batch, c.length, 1));
  Subject subject;
  const Outcome native = bench.judge(Oracle::native, subject);
  EXPECT_EQ(native.verdict, Verdict::mistrusted);
  EXPECT_THAT(native.message, HasSubstr("without attention"));
  EXPECT_LT(native.deviation, native.threshold);
  EXPECT_EQ(bench.judge(Oracle::tree, subject).verdict, Verdict::passed);
  // What stands above the threshold is a failure all the same.
  Changed broken([](ShardedTensors& shards) {
    std::swap(shards.at("layers.0.down")[0], shards.at("layers.0.down")[1]);
  });
  EXPECT_EQ(bench.judge(Oracle::native, broken).verdict, Verdict::failed);
}

TEST(LogitOracles, AConstantOutputIsVacuous) {
  Case c = small_case("seed", "seed");
  c.geometry.vocab = 1;
  c.length = 1;
  Workbench bench(c);
  Subject subject;
  EXPECT_EQ(bench.judge(Oracle::tree, subject).verdict, Verdict::vacuous);
  EXPECT_EQ(bench.judge(Oracle::native, subject).verdict, Verdict::vacuous);
}

TEST(WorkbenchJudge, ShardsTheLibraryRefusesAreAFailure) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Changed subject([](ShardedTensors& shards) { shards.erase("layers.0.down"); });
  const Outcome outcome = bench.judge(Oracle::native, subject);
  EXPECT_EQ(outcome.verdict, Verdict::failed);
  EXPECT_THAT(outcome.message, HasSubstr("layers.0.down"));
}

TEST(WorkbenchJudgeShards, HoldsShardsMadeElsewhereAgainstTheWeights) {
  Workbench bench(small_case("seed", "seed:tp2"));
  Subject subject;
  ShardedTensors shards = split(bench.weights(), bench.target());
  for (const Oracle oracle : kJudging) {
    EXPECT_EQ(bench.judge_shards(oracle, subject, shards).verdict, Verdict::passed);
  }
  std::swap(shards.at("layers.1.qkv")[0], shards.at("layers.1.qkv")[1]);
  for (const Oracle oracle : kJudging) {
    EXPECT_EQ(bench.judge_shards(oracle, subject, shards).verdict, Verdict::failed) << to_string(oracle);
  }
  EXPECT_EQ(bench.judge_shards(Oracle::layout, subject, shards).difference->parameter, "layers.1.qkv");
}

TEST(FirstDifference, TellsMissingExtraAndMisshapenTensorsApart) {
  const Workbench bench(small_case("seed", "seed:tp2"));
  const ShardedTensors right = split(bench.weights(), bench.target());
  const auto difference_after = [&](auto change) {
    ShardedTensors shards = right;
    change(shards);
    return Workbench::first_difference(bench.target(), right, shards);
  };
  EXPECT_FALSE(difference_after([](auto&) {}));
  const auto missing = difference_after([](auto& s) { s.at("embed").pop_back(); });
  EXPECT_EQ(missing->rank, 1);
  EXPECT_EQ(missing->actual, "nothing");
  const auto extra = difference_after([](auto& s) { s["layers.9.down"] = s.at("embed"); });
  EXPECT_EQ(extra->parameter, "layers.9.down");
  EXPECT_EQ(extra->expected, "nothing");
  const auto surplus = difference_after([](auto& s) { s.at("embed").push_back(s.at("embed").front()); });
  EXPECT_EQ(surplus->rank, 2);
  const auto misshapen = difference_after([](auto& s) { s.at("embed")[0] = s.at("embed")[0].rows(0, 1); });
  EXPECT_EQ(misshapen->expected, "f32 [26, 24]");
  EXPECT_EQ(misshapen->actual, "f32 [1, 24]");
}

TEST(Workbench, RefusesWhatCannotBeMadeConcrete) {
  EXPECT_THROW(Workbench(small_case("seed", "seed:tp8")), UnsupportedLayout);
  EXPECT_THROW(Workbench(small_case("seed:tp3", "seed")), UnsupportedLayout);
  Case c = small_case("seed", "seed");
  c.geometry.n_kv_heads = 3;
  EXPECT_THROW(Workbench{c}, InvalidInput);
  c = small_case("seed", "seed");
  TensorMap weights = make_weights(c.geometry, WeightStyle::powered, 0, DType::f32);
  weights.erase("embed");
  EXPECT_THROW(Workbench(c, weights, make_tokens(c.geometry, 1, 4, 0)), InvalidInput);
}

TEST(Workbench, RefusesSequencesAndChunksThatItsForwardPassDoesNotRead) {
  const auto refusal_of = [](const Case& c) -> std::string {
    try {
      const Workbench bench(c);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "accepted";
  };
  Case ragged = small_case("seed", "seed:tp2"), cut = ragged;
  ragged.lengths = {3, 5};
  cut.chunks = {4};
  EXPECT_THAT(refusal_of(ragged),
              AllOf(HasSubstr("lengths"), HasSubstr("sharded_equals_reference"), HasSubstr("allowed")));
  EXPECT_THAT(refusal_of(cut),
              AllOf(HasSubstr("chunks"), HasSubstr("sharded_equals_reference"), HasSubstr("allowed")));
}

TEST(Workbench, DrawsWeightsAndTokensFromTheSeed) {
  const Case c = small_case("seed", "seed");
  const Workbench bench(c);
  const TensorMap weights = make_weights(c.geometry, WeightStyle::powered, 5, DType::f32);
  EXPECT_TRUE(bench.weights().at("layers.0.q").same_bytes(weights.at("layers.0.q")));
  EXPECT_EQ(bench.tokens().ids, make_tokens(c.geometry, 1, 32, 10005).ids);
}

}  // namespace
}  // namespace shardcheck
