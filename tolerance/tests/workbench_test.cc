#include "shardcheck/tolerance/workbench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

/// Small models of every family that a built-in table is for.
std::vector<Geometry> geometries_of_every_family() {
  Geometry llama = small_case("seed", "seed").geometry;
  llama.d_model = 32, llama.vocab = 8;
  llama.qkv_bias = llama.o_bias = llama.qk_norm = true;
  Geometry experts = llama;
  experts.n_experts = 4, experts.expert_ffn = 16, experts.shared_ffn = 8;
  Geometry bare_experts = experts;
  bare_experts.shared_ffn = 0, bare_experts.qkv_bias = bare_experts.o_bias = bare_experts.qk_norm = false;
  Geometry latent = experts;
  latent.qkv_bias = latent.o_bias = latent.qk_norm = false;
  latent.n_kv_heads = latent.n_heads;
  latent.q_lora = 6, latent.kv_lora = 5, latent.nope_dim = 4, latent.rope_dim = 2, latent.v_dim = 3;
  Geometry gpt2 = llama;
  gpt2.n_kv_heads = gpt2.n_heads;
  gpt2.norm = Norm::layer;
  gpt2.gated = gpt2.qk_norm = false;
  gpt2.mlp_bias = true;
  Geometry gpt2_tied = gpt2;
  gpt2_tied.tied = true;
  gpt2_tied.positions = 16;
  return {llama, experts, bare_experts, latent, gpt2, gpt2_tied};
}

/// Every model that the table can hold, on two ranks.
std::vector<Case> cases_of(const std::string& table) {
  std::vector<Case> cases;
  for (const Geometry& geometry : geometries_of_every_family()) {
    Case c = small_case("seed", "seed:tp2");
    c.geometry = geometry;
    c.weights = WeightStyle::powered;
    c.source.table = c.target.table = table;
    try {
      make_layout(c.target, c.geometry);
      cases.push_back(c);
    } catch (const InvalidInput&) {  // of another family
    } catch (const UnsupportedLayout&) {
    }
  }
  return cases;
}

/// The float next to one, away from zero.
void nudge(Tensor& tensor, std::int64_t index) { tensor.set_bits(index, tensor.bits(index) + 1); }

// Delivered shards: one element of any of them, by one unit in the last place.
TEST(LayoutOracle, SeesOneUlpInAnyParameterOfAnyTable) {
  for (const std::string& table : LayoutTable::built_in_names()) {
    const std::vector<Case> cases = cases_of(table);
    EXPECT_FALSE(cases.empty()) << table;
    for (const Case& c : cases) {
      SCOPED_TRACE(print_case(c));
      Workbench bench(c);
      Subject right;
      ASSERT_EQ(bench.judge(Oracle::layout, right).verdict, Verdict::passed);
      for (const LayoutEntry& entry : bench.target().entries) {
        Changed subject([&](ShardedTensors& shards) { nudge(shards.at(entry.name)[1], 0); });
        const Outcome outcome = bench.judge(Oracle::layout, subject);
        ASSERT_EQ(outcome.verdict, Verdict::failed) << entry.name;
        EXPECT_EQ(outcome.difference->parameter, entry.name);
      }
    }
  }
}

/// Ours, of weights with one element changed.
class ChangedWeights final : public Subject {
 public:
  explicit ChangedWeights(std::string tensor, std::int64_t index)
      : tensor_(std::move(tensor)), index_(index) {}
  ShardedTensors split(const TensorMap& full, const Layout& layout) override {
    return Subject::split(changed(full), layout);
  }
  TensorMap changed(TensorMap full) const {
    nudge(full.at(tensor_), index_);
    return full;
  }

 private:
  std::string tensor_;
  std::int64_t index_;
};

// Weights before they are split: wherever the change outlives the arithmetic of the layout.
TEST(LayoutOracle, SeesOneUlpOfAnyWeightThroughShiftsAndShares) {
  for (const char* table : {"megatron-llama-zero-centered", "seed-bias-divided", "seed-bias-on-first-rank"}) {
    for (const char* axes : {":tp2", ":tp4"}) {
      Case c = small_case("seed", (table + std::string(axes)).c_str());
      c.geometry.o_bias = true;
      c.weights = WeightStyle::powered;
      Workbench bench(c);
      const ShardedTensors right = split(bench.weights(), bench.target());
      for (const auto& [name, tensor] : bench.weights()) {
        std::int64_t told = 0;
        for (const std::int64_t index : {0, 1, 2, 3, 4, 5}) {
          ChangedWeights subject(name, index);
          const ShardedTensors other = split(subject.changed(bench.weights()), bench.target());
          if (!Workbench::first_difference(bench.target(), right, other)) continue;
          ++told;
          EXPECT_EQ(bench.judge(Oracle::layout, subject).verdict, Verdict::failed)
              << table << axes << " " << name << " " << index;
        }
        EXPECT_GE(told, 2) << table << " " << name;
      }
    }
  }
}

TEST(LayoutOracle, SeesNormsMovedWhereTheyAreStoredShifted) {
  Case c = small_case("seed:tp2", "megatron-llama-zero-centered:tp2");
  c.weights = WeightStyle::powered;
  Workbench bench(c);
  for (const LayoutEntry& entry : bench.target().entries) {
    if (entry.arrangement().shift == 0) continue;
    Changed subject([&](ShardedTensors& shards) {
      auto values = shards.at(entry.name)[1].mutable_f32();
      std::rotate(values.begin(), values.begin() + 5, values.end());
    });
    const Outcome outcome = bench.judge(Oracle::layout, subject);
    ASSERT_EQ(outcome.verdict, Verdict::failed) << entry.name;
    EXPECT_EQ(outcome.difference->parameter, entry.name);
  }
}

TEST(LayoutOracle, PassesTheLibraryFromSourcesThatRound) {
  for (const char* source :
       {"megatron-llama-zero-centered:tp2", "seed-bias-divided:tp3", "seed-bias-on-first-rank:tp2"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Case c = small_case(source, "seed:tp2");
      c.geometry.d_model = 48, c.geometry.n_heads = c.geometry.n_kv_heads = 12, c.geometry.ffn = 48;
      c.geometry.o_bias = true;
      c.weights = WeightStyle::powered;
      c.dtype = dtype;
      Workbench bench(c);
      Subject subject;
      const Outcome outcome = bench.judge(Oracle::layout, subject);
      EXPECT_EQ(outcome.verdict, Verdict::passed) << source << ": " << outcome.message;
    }
  }
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
