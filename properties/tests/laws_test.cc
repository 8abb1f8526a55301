// Every law holds for this library, and every law can fail: each is shown a subject that breaks its claim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "../src/law_support.h"
#include "quantized_subjects.h"
#include "shardcheck/mutators/effective.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck {
namespace {

using SubjectOf = std::function<std::shared_ptr<Subject>(const Case&)>;

// Laws hold -------------------------------------------------------------------------------------------------

class LawHolds : public ::testing::Test {
 public:
  explicit LawHolds(const Law& law) : law_(law) {}

  void TestBody() override {
    RunOptions options;
    options.seed = 20240607;
    options.jobs = 2;
    const LawReport report = run_law(law_, options);
    EXPECT_EQ(report.verdict, Verdict::passed) << ::testing::PrintToString(report.health);
    if (report.failure) ADD_FAILURE() << describe_failure(law_, *report.failure, "shardcheck");
    EXPECT_GE(report.passed, law_.smoke_cases);
  }

 private:
  const Law& law_;
};

const bool kRegistered = [] {
  for (const Law* law : all_laws()) {
    ::testing::RegisterTest("LawHolds", std::string(law->name).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [law]() -> ::testing::Test* { return new LawHolds(*law); });
  }
  return true;
}();

// Broken subjects -------------------------------------------------------------------------------------------

void flip_first_bit(Tensor& tensor) {
  if (tensor.elements() > 0) tensor.mutable_bytes()[0] ^= std::byte{1};
}

void flip_last_rank(ShardedTensors& shards, const LayoutEntry& entry) {
  flip_first_bit(shards.find(entry.name)->second.back());
}

const LayoutEntry& entry_of(const Layout& layout, std::string_view role) {
  return layout.entry_of(std::string("layers.0.").append(role));
}

class EveryRankLoadsShardZero : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    std::vector<Tensor>& ranks = shards.find(entry_of(target, "o_proj").name)->second;
    for (Tensor& tensor : ranks) tensor = ranks.front();
    return shards;
  }
};

class GatherFlipsABit : public Subject {
  TensorMap gather(const ShardedTensors& shards, const Layout& source) override {
    TensorMap full = Subject::gather(shards, source);
    flip_first_bit(full.find("layers.0.down")->second);
    return full;
  }
};

class SplitFlipsABit : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    flip_last_rank(shards, entry_of(target, "down"));
    return shards;
  }
};

/// Takes rank 0's replica for every rank, as many gathers do.
class TrustsRankZero : public Subject {
  static ShardedTensors with_equal_replicas(ShardedTensors shards, const Layout& layout) {
    for (const LayoutEntry& entry : layout.entries) {
      if (!std::holds_alternative<Replicate>(entry.placed.placement())) continue;
      std::vector<Tensor>& ranks = shards.find(entry.name)->second;
      for (Tensor& tensor : ranks) tensor = ranks.front();
    }
    return shards;
  }
  TensorMap gather(const ShardedTensors& shards, const Layout& source) override {
    return Subject::gather(with_equal_replicas(shards, source), source);
  }
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    return Subject::reshard(with_equal_replicas(shards, source), source, target);
  }
};

class TrustsRankZeroWhileResharding : public TrustsRankZero {
  TensorMap gather(const ShardedTensors& shards, const Layout& source) override {
    return Subject::gather(shards, source);
  }
};

class ReshardFlipsABit : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors out = Subject::reshard(shards, source, target);
    flip_last_rank(out, entry_of(target, "down"));
    return out;
  }
};

/// Forgets what a source of several ranks holds in its last bit of sign: visible through the source degree
/// only.
class NegatesAfterShardedSource : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors out = Subject::reshard(shards, source, target);
    if (source.degree > 1)
      out.find(entry_of(target, "down").name)->second.back().mutable_bytes()[3] ^= std::byte{0x80};
    return out;
  }
};

class RefusesSeveralRanks : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    if (target.degree > 1) throw UnsupportedLayout("several ranks");
    return Subject::split(full, target);
  }
};

/// Cuts by the right table whatever table it is given.
class IgnoresTheTable : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    return Subject::reshard(shards, source, make_layout(target.name, target.geometry));
  }
};

template <typename Steps>
class WithSteps : public Subject {
  const ForwardSteps& steps() const override { return steps_; }
  Steps steps_;
};

class NonCausal : public ForwardSteps {
  bool causal(const StepSite&) const override { return false; }
};

class NeverReduces : public ForwardSteps {
  int reductions(const StepSite&, std::string_view) const override { return 0; }
};

class LastRankScalesItsNorm : public ForwardSteps {
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const float divisor = ForwardSteps::norm_statistics(site, x, rows, width, sums);
    return site.rank > 0 && site.rank == site.degree - 1 ? divisor * 1.5F : divisor;
  }
};

/// Embedding rows that no token of the case reads come out as NaN.
class PoisonsUnusedRows : public Subject {
 public:
  explicit PoisonsUnusedRows(const Case& c) {
    const Tokens tokens = make_tokens(c.geometry, c.batch, c.length, 10000 + c.seed);
    used_.insert(tokens.ids.begin(), tokens.ids.end());
  }

 private:
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    TensorMap poisoned = full;
    Tensor& embed = poisoned.find("embed")->second;
    const auto row_bytes = embed.bytes().size() / static_cast<std::size_t>(embed.dim(0));
    auto bytes = embed.mutable_bytes();
    for (std::int64_t row = 0; row < embed.dim(0); ++row) {
      if (used_.contains(static_cast<std::int32_t>(row))) continue;
      for (std::byte& b : bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes))
        b = std::byte{0xff};
    }
    return Subject::split(poisoned, target);
  }
  std::set<std::int32_t> used_;
};

/// Damages the first tensor that a rank holds; any family's.
class ReshardFlipsAnyBit : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors out = Subject::reshard(shards, source, target);
    const LayoutEntry& entry = target.entries.front();
    flip_first_bit(out.find(entry.name)->second[static_cast<std::size_t>(entry.placed.holders().front())]);
    return out;
  }
};

/// Hands the last holder of every tensor what the first one holds.
class SplitRepeatsTheFirstHolder : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    for (const LayoutEntry& entry : target.entries) {
      std::vector<Tensor>& ranks = shards.find(entry.name)->second;
      const std::vector<int> holders = entry.placed.holders();
      Tensor &first = ranks[static_cast<std::size_t>(holders.front())],
             &last = ranks[static_cast<std::size_t>(holders.back())];
      if (first.shape() == last.shape()) last = first;
    }
    return shards;
  }
};

/// Cuts fused and reordered tensors as if their parts lay one after the other.
class SplitIgnoresTheOrder : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    for (LayoutEntry entry : target.entries) {
      if (!entry.arranged || entry.placed.shape() != file_shape({}, entry.parts)) continue;
      entry.arranged = nullptr;
      shards.find(entry.name)->second = split_tensor(entry.placed, fuse(entry, full));
    }
    return shards;
  }
};

class SplitLosesATensor : public Subject {
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    shards.erase(target.entries.back().name);
    return shards;
  }
};

/// Reads every element from another process where it can.
class PlansForOtherProcesses : public Subject {
  Plan plan(const Layout& source, const Layout& target) override {
    RankMap reversed(static_cast<std::size_t>(target.degree));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return make_plan(source, target, reversed);
  }
};

/// Cuts every copy that has two rows, as tilings by a least common multiple do.
class PlansRowByRow : public Subject {
  Plan plan(const Layout& source, const Layout& target) override {
    const Plan whole = make_plan(source, target);
    Plan cut;
    for (const Copy& copy : whole.copies) {
      cut.copies.push_back(copy);
      if (copy.size[0] < 2 || copy.source_dim[0] < 0) continue;
      Copy& first = cut.copies.back();
      Copy rest = copy;
      first.size[0] = 1;
      rest.size[0] -= 1;
      rest.target_origin[0] += 1;
      rest.source_origin[static_cast<std::size_t>(copy.source_dim[0])] += 1;
      cut.copies.push_back(rest);
    }
    return cut;
  }
};

/// Fills its padding with what the source's padding holds.
class CopiesPadding : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors out = Subject::reshard(shards, source, target);
    for (auto& [name, ranks] : out) {
      for (Tensor& tensor : ranks) {
        for (std::int64_t i = 0; i < tensor.elements(); ++i) {
          if (tensor.bits(i) == 0) tensor.set_bits(i, 0x7fc0dead);
        }
      }
    }
    return out;
  }
  TensorMap gather(const ShardedTensors& shards, const Layout& source) override {
    TensorMap full = Subject::gather(shards, source);
    flip_first_bit(full.begin()->second);
    return full;
  }
};

/// Forgets to bring a tied copy up to date.
class LeavesTiedCopiesStale : public Subject {
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors out = Subject::reshard(shards, source, target);
    for (const LayoutEntry& entry : target.entries) {
      if (!entry.tied) continue;
      for (Tensor& tensor : out.find(entry.name)->second) flip_first_bit(tensor);
    }
    return out;
  }
};

/// Reads where the tensors of a layout lie from the table alone.
class CutsPairsAtTheUsualOffsets final : public Subject {
 public:
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    return Subject::split(full, make_layout(target.name, target.geometry));
  }
};

template <typename Broken>
SubjectOf always() {
  return [](const Case&) { return std::make_shared<Broken>(); };
}

std::shared_ptr<Subject> poisons_unused_rows(const Case& c) { return std::make_shared<PoisonsUnusedRows>(c); }

/// Per law, subjects that break its claim.
/// The case's subject with a fault of the catalogue.
SubjectOf with_fault(std::string_view name) {
  return [name](const Case& c) {
    Case faulty = c;
    faulty.fault = name;
    return subject_of(faulty);
  };
}

class RepeatsTheFirstPart final : public CollectiveDecorator {
 public:
  using CollectiveDecorator::CollectiveDecorator;
  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                          std::vector<std::size_t>& sizes) override {
    const std::vector<std::span<const std::byte>> first(sends.size(), sends.front());
    return inner().all_gather_bytes(first, sizes);
  }
};

/// A gather that delivers the first rank's part in the place of every other.
class LosesAPart final : public Subject {
 public:
  std::unique_ptr<Collective> collective(int degree) override {
    return std::make_unique<RepeatsTheFirstPart>(Subject::collective(degree));
  }
};

std::map<std::string, std::vector<SubjectOf>> broken_subjects() {
  return {
      {"placement_covers_once", {always<EveryRankLoadsShardZero>()}},
      {"gather_inverts_split", {always<GatherFlipsABit>(), always<SplitFlipsABit>()}},
      {"split_inverts_gather", {always<SplitFlipsABit>(), always<GatherFlipsABit>()}},
      {"divergent_replicas_are_rejected",
       {always<TrustsRankZero>(), always<TrustsRankZeroWhileResharding>()}},
      {"reshard_equals_gather_then_split", {always<ReshardFlipsABit>()}},
      {"reshard_composes", {always<ReshardFlipsABit>()}},
      {"degree_one_is_identity", {always<WithSteps<NonCausal>>()}},
      {"sharded_equals_reference", {always<WithSteps<NeverReduces>>(), always<EveryRankLoadsShardZero>()}},
      {"source_degree_is_invisible", {always<NegatesAfterShardedSource>()}},
      {"rejected_iff_unrepresentable", {always<RefusesSeveralRanks>()}},
      {"ranks_agree", {always<WithSteps<LastRankScalesItsNorm>>()}},
      {"wrong_table_is_detected", {always<IgnoresTheTable>()}},
      {"unused_rows_are_compared", {poisons_unused_rows}},
      {"every_sync_delivers_its_weights", {with_fault("cache_layer_after_first_sync")}},
      {"paired_ranges_follow_their_offsets", {always<CutsPairsAtTheUsualOffsets>()}},
      {"tp_degree_is_invisible", {with_fault("leaf_from_rank_count"), with_fault("leaf_from_local_k")}},
      {"instruction_set_is_invisible", {with_fault("lanes_across_k")}},
      {"rerun_is_identical", {with_fault("split_by_thread_count")}},
      {"tree_error_within_bound", {with_fault("bf16_nodes")}},
      {"batch_is_invisible", {with_fault("split_by_batch_size")}},
      {"chunking_is_invisible", {with_fault("blocks_from_chunk_start")}},
      {"decoding_equals_prefill", {with_fault("reorder_single_token_sums")}},
      {"pipeline_split_is_invisible", {with_fault("stage_boundary_rounds_residual")}},
      {"sequence_parallel_is_invisible", {with_fault("sequence_chunk_reduces_alone")}},
      {"expert_parallel_is_invisible", {with_fault("combine_experts_by_arrival")}},
      {"context_parallel_is_invisible", {with_fault("context_rank_uses_local_maximum")}},
      {"logprobs_agree_across_layouts",
       {with_fault("vocabulary_leaf_from_local_shard"), with_fault("swap_gate_and_up")}},
      {"axis_compositions_are_invisible",
       {with_fault("split_by_batch_size"), with_fault("context_rank_uses_local_maximum"),
        with_fault("stage_boundary_rounds_residual")}},
      {"mesh_equals_reference", {always<EveryRankLoadsShardZero>()}},
      {"relabel_is_invisible", {always<EveryRankLoadsShardZero>()}},
      {"exact_merge_order_is_invisible", {always<LosesAPart>()}},
      {"plan_equals_gather_then_split", {always<ReshardFlipsAnyBit>()}},
      {"there_and_back", {always<ReshardFlipsAnyBit>()}},
      {"digest_is_layout_independent", {always<ReshardFlipsAnyBit>()}},
      {"mesh_covers_once", {always<SplitRepeatsTheFirstHolder>()}},
      {"table_covers_model", {always<SplitLosesATensor>()}},
      {"plan_moves_minimal_bytes", {always<PlansForOtherProcesses>()}},
      {"plan_has_minimal_copies", {always<PlansRowByRow>()}},
      {"padding_never_leaks", {always<CopiesPadding>()}},
      {"control_bias_encodings_are_equal", {always<WithSteps<NeverReduces>>()}},
      {"control_ranks_without_kv_rows_lose_nothing", {always<ReshardFlipsAnyBit>()}},
      {"control_tied_head_needs_no_copy", {always<EveryRankLoadsShardZero>()}},
      {"control_layer_offset_formulas_agree", {always<ReshardFlipsAnyBit>()}},
      {"control_relabellings_pass", {always<WithSteps<NeverReduces>>()}},
      {"control_trailing_empty_shards_are_right", {always<ReshardFlipsAnyBit>()}},
      {"tied_stay_tied", {always<LeavesTiedCopiesStale>()}},
      {"permutation_commutes_with_split", {always<SplitIgnoresTheOrder>()}},
      {"dequantize_commutes_with_split",
       {always<SlicesScalesUnderActOrder>(), always<RenumbersGroups>(), always<CutsInsideWords>(),
        always<RoundsBlockOffsetsUp>()}},
  };
}

LawReport run_with(const Law& law, const SubjectOf& subject) {
  RunOptions options;
  options.seed = 7;
  options.subject = subject;
  options.shrink_steps = 20;
  return run_law(law, options);
}

TEST(LawCanFail, EveryLawHasASubjectThatBreaksIt) {
  const auto broken = broken_subjects();
  for (const Law* law : all_laws()) {
    // The law about text takes no subject: its own test breaks the printer. Nor does the one about effective
    // weights: faults break those.
    if (law->name == "printed_case_parses_back" || law->name == kEffectiveLaw) continue;
    const auto found = broken.find(std::string(law->name));
    ASSERT_NE(found, broken.end()) << law->name;
    for (const SubjectOf& subject : found->second) {
      const LawReport report = run_with(*law, subject);
      EXPECT_EQ(report.verdict, Verdict::failed) << law->name << ::testing::PrintToString(report.health);
    }
  }
}

/// Equal shares of a bias: exact for powers of two, and never of a fingerprint.
TEST(LawSkips, SharesThatRoundAreNotJudgedByBits) {
  const auto verdict = [](const std::string& line) {
    const Case c = parse_case(line);
    return check_case(law_named(c.law), c).verdict;
  };
  const std::string geometry = " heads=6 kv_heads=6 ffn=24 vocab=24 o_bias=true length=32";
  EXPECT_EQ(verdict("gather_inverts_split" + geometry + " target=seed-bias-divided:tp2"), Verdict::skipped);
  EXPECT_EQ(verdict("gather_inverts_split" + geometry + " target=seed-bias-on-first-rank:tp2"),
            Verdict::passed);
  EXPECT_EQ(verdict("unused_rows_are_compared" + geometry + " source=seed-bias-divided:tp3"),
            Verdict::skipped);
  const std::string forward = "sharded_equals_reference" + geometry + " target=seed-bias-divided:";
  EXPECT_EQ(verdict(forward + "tp2 arithmetic=exact"), Verdict::passed);
  EXPECT_EQ(verdict(forward + "tp2 dtype=bf16 arithmetic=tree"), Verdict::passed);
  EXPECT_EQ(verdict(forward + "tp3 arithmetic=exact"), Verdict::skipped);
  EXPECT_EQ(verdict(forward + "tp3 dtype=bf16"), Verdict::skipped);
  EXPECT_EQ(verdict(forward + "tp3"), Verdict::passed);
}

/// Meshes that the target's consumer does not run over are refused by name, never judged.
TEST(LawSkips, MeshesThatNothingExecutesAreNotJudged) {
  for (const char* line :
       {"sharded_equals_reference layers=2 heads=4 kv_heads=4 target=megatron-llama:pp2",
        "sharded_equals_reference layers=2 heads=4 kv_heads=4 target=megatron-llama:dp2",
        "degree_one_is_identity layers=2 heads=4 kv_heads=4 target=vllm-llama:pp2",
        "relabel_is_invisible layers=2 heads=4 kv_heads=4 arithmetic=exact target=vllm-llama:pp2",
        "sharded_equals_reference heads=4 kv_heads=4 target=fsdp2-tp",
        "rejected_iff_unrepresentable layers=3 heads=4 kv_heads=4 target=vllm-llama:pp2"}) {
    const Case c = parse_case(line);
    EXPECT_EQ(check_case(law_named(c.law), c).verdict, Verdict::skipped) << line;
  }
}

TEST(LawSkips, ALawThatDoesNotSpeakOfAnArithmeticSaysSo) {
  for (const char* line : {"tp_degree_is_invisible", "relabel_is_invisible arithmetic=tree"}) {
    const Case c = parse_case(line);
    const Outcome outcome = check_case(law_named(c.law), c);
    EXPECT_EQ(outcome.verdict, Verdict::vacuous) << line;
    EXPECT_NE(outcome.message.find("says nothing"), std::string::npos) << outcome.message;
  }
}

TEST(LawSkips, ALeafFaultActsAtAnyDegreeOfTheContractUnderTheLawOfDegrees) {
  const Case c =
      parse_case("tp_degree_is_invisible heads=4 kv_heads=4 arithmetic=tree fault=leaf_from_local_k");
  EXPECT_EQ(check_case(law_named(c.law), c).verdict, Verdict::failed);
}

/// Having one axis does not give another.
TEST(LawCanFail, AFaultOfOneAxisIsSeenByThatAxisAlone) {
  const std::map<std::string, std::string> axis_of = {{"leaf_from_rank_count", "tp_degree_is_invisible"},
                                                      {"leaf_from_local_k", "tp_degree_is_invisible"},
                                                      {"lanes_across_k", "instruction_set_is_invisible"},
                                                      {"split_by_thread_count", "rerun_is_identical"},
                                                      {"bf16_nodes", "tree_error_within_bound"}};
  const std::vector<std::string> axes = {"tp_degree_is_invisible", "instruction_set_is_invisible",
                                         "rerun_is_identical", "tree_error_within_bound"};
  for (const auto& [fault, axis] : axis_of) {
    for (const std::string& law : axes) {
      RunOptions options;
      options.seed = 7;
      options.cases = 12;
      options.arithmetic = Arithmetic::tree;
      options.subject = with_fault(fault);
      options.shrink_steps = 0;
      EXPECT_EQ(run_law(law_named(law), options).verdict == Verdict::failed, law == axis)
          << fault << " under " << law;
    }
  }
}

TEST(LawCanFail, EveryCaseOfRanksAgreeCanFail) {
  // Scaling the norm of one rank is seen on every drawn case, whatever its geometry.
  const Law& law = law_named("ranks_agree");
  WithSteps<LastRankScalesItsNorm> broken;
  for (std::uint64_t i = 0; i < 30; ++i) {
    Stream stream(i, law.name);
    const Case c = law.draw(stream);
    EXPECT_EQ(check_case(law, c, broken).verdict, Verdict::failed) << print_case(c);
  }
}

TEST(LawCanFail, ABrokenPrinterIsSeenByTheLawAboutText) {
  const auto parse = [](std::string_view line) { return parse_case(line); };
  const Case c = parse_case("law layers=2 seed=9");
  EXPECT_EQ(text_round_trips(c, print_case, parse).verdict, Verdict::passed);
  const auto forgets_the_seed = [](Case printed) {
    printed.seed = 0;
    return print_case(printed);
  };
  EXPECT_EQ(text_round_trips(c, forgets_the_seed, parse).verdict, Verdict::failed);
  const auto unreadable = [](const Case& printed) { return print_case(printed) + " ="; };
  EXPECT_EQ(text_round_trips(c, unreadable, parse).verdict, Verdict::failed);
  // The law itself reads the text of its cases.
  Case with_text = c;
  with_text.input = "law layers=2";
  const auto forgets_the_text = [](const Case& printed) {
    return printed.input.empty() ? "law" : print_case(printed);
  };
  EXPECT_EQ(text_round_trips(with_text, print_case, parse).verdict, Verdict::passed);
  EXPECT_EQ(text_round_trips(with_text, forgets_the_text, parse).verdict, Verdict::failed);
}

TEST(LawCanFail, LogitsCannotSeeRowsThatNoTokenReads) {
  Case c = parse_case(
      "sharded_equals_reference d_model=24 heads=4 kv_heads=2 ffn=12 vocab=100 arithmetic=tree "
      "target=seed:tp2");
  EXPECT_EQ(check_case(law_named("sharded_equals_reference"), c, *poisons_unused_rows(c)).verdict,
            Verdict::passed);
  EXPECT_EQ(check_case(law_named("unused_rows_are_compared"), c, *poisons_unused_rows(c)).verdict,
            Verdict::failed);
}

// Messages --------------------------------------------------------------------------------------------------

TEST(LawMessages, AByteLawNamesParameterAndOrigin) {
  EveryRankLoadsShardZero subject;
  const Case c = parse_case("split_inverts_gather heads=2 kv_heads=2 target=seed:tp2");
  const Outcome outcome = check_case(law_named("reshard_equals_gather_then_split"), c, subject);
  ASSERT_EQ(outcome.verdict, Verdict::failed);
  ASSERT_TRUE(outcome.difference.has_value());
  EXPECT_EQ(outcome.difference->parameter, "layers.0.o_proj");
  EXPECT_EQ(outcome.difference->target_degree, 2);
  EXPECT_EQ(outcome.difference->rank, 1);
  EXPECT_THAT(outcome.difference->expected, ::testing::HasSubstr("layers.0.o_proj[0]"));
  EXPECT_THAT(outcome.difference->actual, ::testing::HasSubstr("layers.0.o_proj[8]"));
}

TEST(LawMessages, ALogitsLawNamesTheParameterThatLiesWrong) {
  EveryRankLoadsShardZero subject;
  const Case c = parse_case("sharded_equals_reference heads=2 kv_heads=2 source=seed:tp2 target=seed:tp2");
  const Outcome outcome = check_case(law_named("sharded_equals_reference"), c, subject);
  ASSERT_EQ(outcome.verdict, Verdict::failed);
  ASSERT_TRUE(outcome.difference.has_value());
  EXPECT_EQ(outcome.difference->parameter, "layers.0.o_proj");
  EXPECT_EQ(outcome.difference->source_degree, 2);
  EXPECT_EQ(outcome.difference->target_degree, 2);
  EXPECT_EQ(outcome.difference->rank, 1);
  EXPECT_GT(outcome.difference->max_abs, outcome.difference->threshold);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("layers.0.o_proj"));
}

TEST(LawMessages, ACaseOfSequencesOrChunksThatALawDoesNotReadIsRefusedByKeyAndLaw) {
  for (const char* line :
       {"sharded_equals_reference lengths=3,4", "sharded_equals_reference chunks=5",
        "degree_one_is_identity lengths=3,4", "tp_degree_is_invisible arithmetic=tree lengths=3,4",
        "rerun_is_identical chunks=5", "logprobs_agree_across_layouts arithmetic=tree lengths=3,4",
        "batch_is_invisible arithmetic=tree chunks=5", "decoding_equals_prefill arithmetic=tree chunks=5",
        "sequence_parallel_is_invisible arithmetic=tree chunks=5"}) {
    const Case c = parse_case(line);
    const Outcome outcome = check_case(law_named(c.law), c);
    EXPECT_EQ(outcome.verdict, Verdict::error) << line;
    EXPECT_THAT(outcome.message, ::testing::StartsWith(c.lengths.empty() ? "chunks" : "lengths")) << line;
    EXPECT_THAT(outcome.message, ::testing::HasSubstr(c.law));
  }
}

TEST(LawMessages, ASequenceOfOneTokenHasNothingToDecode) {
  for (const char* tokens : {"length=1", "lengths=1,1"}) {
    const Case c = parse_case(std::string("decoding_equals_prefill arithmetic=tree ") + tokens);
    EXPECT_EQ(check_case(law_named(c.law), c).verdict, Verdict::vacuous) << tokens;
  }
  const Case one = parse_case("decoding_equals_prefill arithmetic=tree lengths=1,3 seed=1");
  EXPECT_EQ(check_case(law_named(one.law), one).verdict, Verdict::passed);
}

TEST(LawMessages, ADegreeThatProvesNothingIsVacuous) {
  Subject subject;
  for (const char* name : {"divergent_replicas_are_rejected", "wrong_table_is_detected"}) {
    Case c;
    c.law = name;
    EXPECT_EQ(check_case(law_named(name), c, subject).verdict, Verdict::vacuous) << name;
  }
  const Case two = parse_case("degree_one_is_identity heads=2 kv_heads=2 target=seed:tp2");
  EXPECT_EQ(check_case(law_named("degree_one_is_identity"), two, subject).verdict, Verdict::vacuous);
  const Law& agree = law_named("ranks_agree");
  for (const char* layout :
       {"target=seed:tp2", "target=hf-llama:tp2", "tied=true target=seed:tp2", "tied=true target=hf-llama"}) {
    const Case gathered = parse_case(std::string("ranks_agree heads=2 kv_heads=2 ") + layout);
    const Outcome outcome = check_case(agree, gathered, subject);
    EXPECT_EQ(outcome.verdict, Verdict::vacuous) << layout;
    EXPECT_THAT(outcome.message, ::testing::HasSubstr("share one copy of the logits"));
  }
  const Case all_tokens = parse_case("unused_rows_are_compared vocab=2 length=64");
  EXPECT_EQ(check_case(law_named("unused_rows_are_compared"), all_tokens, subject).verdict, Verdict::vacuous);
}

TEST(LawDigests, EveryLawFillsADigestThatRepeats) {
  for (const Law* law : all_laws()) {
    Stream stream(11, law->name);
    const Case c = law->draw(stream);
    Subject first, second;
    const Outcome outcome = check_case(*law, c, first);
    ASSERT_EQ(outcome.verdict, Verdict::passed) << print_case(c) << "\n" << outcome.message;
    EXPECT_NE(outcome.digest, 0U) << law->name;
    EXPECT_EQ(outcome.digest, check_case(*law, c, second).digest) << law->name;
  }
}

}  // namespace
}  // namespace shardcheck
