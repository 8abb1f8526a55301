#include "shardcheck/mutators/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "random_cases.h"
#include "shardcheck/mutators/effective.h"
#include "shardcheck/mutators/seed_figures.h"

namespace shardcheck {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string message_of(std::string_view text) {
  try {
    parse_fault(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FaultRegistry, IsSortedAndComplete) {
  const auto& all = all_faults();
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, [](const Fault* f) { return f->name; }));
  std::set<std::string_view> names;
  for (const Fault* fault : all) names.insert(fault->name);
  EXPECT_EQ(names.size(), all.size());
  for (const char* required :
       {"slice_fused_qkv_contiguously", "reverse_rank_order", "rotate_norm_by_rank",
        "slice_fused_gate_up_contiguously", "swap_gate_and_up", "every_rank_loads_shard_zero",
        "gqa_tile_for_repeat", "missing_all_reduce", "double_all_reduce", "local_width_norm_statistics",
        "rope_interleaved_for_half", "wrong_dim_square", "drop_remainder", "zero_o_proj_output"}) {
    EXPECT_TRUE(names.contains(required)) << required;
  }
}

TEST(FaultRegistry, ExactMustSeeWhatTreeSeesButForReductionOrders) {
  for (const Fault* fault : all_faults()) {
    const bool orders_alone = fault->family == 'D';
    EXPECT_EQ(fault->expects(Oracle::exact), fault->expects(Oracle::tree) && !orders_alone) << fault->name;
  }
}

TEST(FaultRegistry, EveryFaultSaysWhatItIs) {
  for (const Fault* fault : all_faults()) {
    EXPECT_THAT(std::string(fault->claim), HasSubstr(" ")) << fault->name;
    EXPECT_EQ(fault->claim.back(), '.') << fault->name;
    EXPECT_NE(family_name(fault->family), "unknown") << fault->name;
    EXPECT_NE(to_string(fault->level), "unknown") << fault->name;
    EXPECT_THAT(fault->reports, Not(IsEmpty())) << fault->name;
    const int ways = (fault->oracles.empty() ? 0 : 1) + (fault->law.empty() ? 0 : 1);
    EXPECT_EQ(ways, fault->is_relabel_control() ? 0 : 1) << fault->name;
    EXPECT_TRUE(!fault->is_relabel_control() || fault->family == 'Z') << fault->name;
    EXPECT_NE(fault->not_applicable, nullptr) << fault->name;
    EXPECT_NE(fault->inject != nullptr, fault->effective != nullptr) << fault->name;
    EXPECT_EQ(fault->effective != nullptr, fault->kind != EffectiveKind::none) << fault->name;
  }
}

TEST(FaultRegistry, WhatChangesShardsIsSeenByTheLayoutOracleUnlessItActsOnRealValues) {
  // Scaling a fingerprint has no meaning.
  const std::set<std::string_view> scales = {"norm_entry_off_by_one_percent", "relative_noise_on_one_shard",
                                             "scale_last_head_row"};
  for (const Fault* fault : all_faults()) {
    if (!fault->law.empty() || fault->is_relabel_control()) continue;
    const bool on_shards = fault->level != FaultLevel::forward && fault->level != FaultLevel::collective;
    const bool by_layout = std::ranges::find(fault->oracles, Oracle::layout) != fault->oracles.end();
    EXPECT_EQ(by_layout, on_shards && !scales.contains(fault->name)) << fault->name;
  }
}

TEST(ParseFault, ReadsWhatItPrints) {
  for (const FaultChoice& choice : every_choice()) {
    const FaultChoice again = parse_fault(choice.text());
    EXPECT_EQ(again.fault, choice.fault);
    EXPECT_EQ(again.argument, choice.argument);
  }
}

TEST(ParseFault, TheFirstArgumentIsTheDefault) {
  EXPECT_EQ(parse_fault("reverse_rank_order").text(), "reverse_rank_order:o_proj");
  EXPECT_EQ(parse_fault("swap_gate_and_up").text(), "swap_gate_and_up");
}

TEST(ParseFault, RefusalsNameTheFaultAndWhatIsAllowed) {
  EXPECT_THAT(message_of("reverse_rank_ordr"), HasSubstr("nearest known one is reverse_rank_order"));
  EXPECT_THAT(message_of("xyz"), HasSubstr("fault 'xyz' is not known"));
  EXPECT_THAT(message_of(""), HasSubstr("is not known"));
  EXPECT_THAT(message_of("reverse_rank_order:attn_norm"), HasSubstr("allowed: o_proj, down"));
  EXPECT_THAT(message_of("reverse_rank_order:"), HasSubstr("argument ''"));
  EXPECT_THAT(message_of("swap_gate_and_up:down"), HasSubstr("takes no argument"));
}

TEST(SeedFigures, AreOfFaultsThatExist) {
  EXPECT_EQ(seed_figures().size(), 4U);
  for (const SeedFigure& figure : seed_figures()) {
    EXPECT_EQ(parse_fault(figure.fault).text(), figure.fault);
    EXPECT_LT(figure.lowest, figure.highest);
    // Multiples of 1e-3, cut off: the printed deviations are rounded to three decimals.
    EXPECT_NEAR(figure.lowest_multiple, figure.lowest / 1e-3, 1.5);
    EXPECT_NEAR(figure.highest_multiple, figure.highest / 1e-3, 1.5);
  }
}

TEST(SubjectOf, IsOursWithoutAFault) {
  Case c = hand_picked("seed", "seed:tp2");
  Workbench bench(c);
  for (const Oracle oracle : {Oracle::layout, Oracle::tree, Oracle::native}) {
    EXPECT_EQ(bench.judge(oracle, *subject_of(c)).verdict, Verdict::passed);
  }
}

TEST(SubjectOf, IsOursWhereTheFaultIsNotApplicable) {
  Case c = hand_picked("seed:tp2", "seed");
  c.fault = "reverse_rank_order:down";
  Workbench bench(c);
  EXPECT_EQ(bench.judge(Oracle::layout, *subject_of(c)).verdict, Verdict::passed);
}

TEST(WhyFaultIsInert, NamesTheFaultAndTheReason) {
  Case c = hand_picked("seed:tp2", "seed");
  EXPECT_EQ(why_fault_is_inert(c), std::nullopt) << "no fault";
  c.fault = "reverse_rank_order:down";
  ASSERT_TRUE(why_fault_is_inert(c).has_value());
  EXPECT_THAT(*why_fault_is_inert(c), HasSubstr("fault reverse_rank_order:down cannot act here: "));
  c.target = parse_layout_name("seed:tp2");
  EXPECT_EQ(why_fault_is_inert(c), std::nullopt);
  c.fault = "no_such_fault";
  EXPECT_THROW(why_fault_is_inert(c), InvalidInput);
}

TEST(WhyFaultIsInert, TreeIsNotAskedAboutARelabelling) {
  Case c = hand_picked("seed", "seed:tp2");
  c.fault = "relabel_ffn_channels";
  EXPECT_EQ(why_fault_is_inert(c), std::nullopt);
  c.arithmetic = Arithmetic::tree;
  ASSERT_TRUE(why_fault_is_inert(c).has_value());
  EXPECT_THAT(*why_fault_is_inert(c), HasSubstr(std::string(kTreeIsNotAsked)));
}

TEST(SuitedTo, LeavesWhatSuitsAndMovesTheRestTheSameWayEachTime) {
  Fault fault = *parse_fault("reverse_rank_order").fault;
  fault.steer = [](Case& c, Stream& stream) {
    c.target = parse_layout_name(stream.chance(1, 2) ? "seed:tp2" : "seed:tp4");
  };
  const FaultChoice choice{&fault, "down"};
  const Case suits = hand_picked("seed", "seed:tp2"), does_not = hand_picked("seed:tp2", "seed");
  EXPECT_EQ(suited_to(choice, suits, 0), suits);
  std::set<int> degrees;
  for (std::uint64_t index = 0; index < 20; ++index) {
    const Case moved = suited_to(choice, does_not, index);
    EXPECT_EQ(fault.why_inapplicable(moved, "down"), std::nullopt);
    EXPECT_EQ(suited_to(choice, does_not, index), moved);
    degrees.insert(moved.target.tp_degree());
  }
  EXPECT_EQ(degrees.size(), 2U) << "each draw has a stream of its own";
}

TEST(WhyFaultIsInert, CountsAnEquivalentFault) {
  Case c = hand_picked("seed", "seed:tp4");
  c.fault = "gqa_tile_for_repeat";
  ASSERT_TRUE(why_fault_is_inert(c).has_value());
  EXPECT_THAT(*why_fault_is_inert(c), HasSubstr("one KV head on each rank"));
  c.target = parse_layout_name("seed:tp2");
  EXPECT_EQ(why_fault_is_inert(c), std::nullopt);
}

TEST(SubjectOf, CarriesTheFaultAndRefusesUnknownOnes) {
  Case c = hand_picked("seed", "seed:tp2");
  c.fault = "reverse_rank_order:down";
  Workbench bench(c);
  EXPECT_EQ(bench.judge(Oracle::layout, *subject_of(c)).difference->parameter, "layers.0.down");
  c.fault = "no_such_fault";
  EXPECT_THROW(subject_of(c), InvalidInput);
}

/// A small case on which the fault acts and is no relabel.
Case applicable_case(const FaultChoice& choice) {
  for (const char* source : {"seed", "seed:tp2"}) {
    for (const char* target : {"seed:tp4", "seed:tp2", "vllm-llama:tp2", "seed"}) {
      Case c = hand_picked(source, target);
      if (c.target.table == "vllm-llama") c.geometry.vocab = 52;
      for (const bool biased_to_evenness : {false, true}) {
        if (biased_to_evenness) c.geometry.vocab = 52;
        const bool applies = !choice.fault->why_inapplicable(c, choice.argument);
        const bool changes =
            choice.fault->equivalent == nullptr || !choice.fault->equivalent(c, choice.argument);
        if (applies && changes) return c;
      }
    }
  }
  for (const char* law : {"sharded_equals_reference", "decoding_equals_prefill"}) {
    for (const char* target : {"seed:pp2,ep2,tp2", "seed:cp2", "seed"}) {
      Case c = hand_picked("seed", target);
      c.law = law;
      c.arithmetic = Arithmetic::tree;
      c.geometry.n_experts = 4, c.geometry.expert_ffn = 24;
      c.batch = 2, c.length = 16;
      c.sequence_parallel = c.target.tp_degree() > 1;
      c.key_block = 8;
      if (c.target.axes.empty()) c.chunks = {3};
      if (!choice.fault->why_inapplicable(c, choice.argument)) {
        c.chunks.clear();  // the workbench runs whole batches
        return c;
      }
    }
  }
  for (std::uint64_t index = 0; index < 100; ++index) {
    const Case c = suited_to(choice, random_case(index), index);
    if (choice.fault->why_inapplicable(c, choice.argument)) continue;
    if (choice.fault->equivalent == nullptr || !choice.fault->equivalent(c, choice.argument)) return c;
  }
  ADD_FAILURE() << "no case for " << choice.text();
  return hand_picked("seed", "seed");
}

class EveryFault : public testing::TestWithParam<FaultChoice> {};

TEST_P(EveryFault, IsKilledUnderEachOracleItDeclares) {
  const FaultChoice& choice = GetParam();
  const Case c = applicable_case(choice);
  Workbench bench(c);
  const auto faulty = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
  for (const Oracle oracle : choice.fault->oracles) {
    if (oracle != Oracle::layout && !can_run(c.target, c.geometry)) continue;
    const Outcome outcome = bench.judge(oracle, *faulty);
    EXPECT_EQ(outcome.verdict, Verdict::failed) << print_case(c) << " under " << to_string(oracle);
  }
}

TEST_P(EveryFault, KeepsTensorsShapesAndDtypes) {
  const FaultChoice& choice = GetParam();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c = applicable_case(choice);
    c.dtype = dtype;
    if (choice.fault->why_inapplicable(c, choice.argument)) continue;
    Workbench bench(c);
    const auto faulty = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
    const ShardedTensors shards = bench.moved(*faulty, bench.weights());
    require_shards_of(bench.target(), shards);
    for (const auto& [name, ranks] : shards) {
      for (const Tensor& shard : ranks) EXPECT_TRUE(shard.elements() == 0 || shard.dtype() == dtype) << name;
    }
  }
}

TEST_P(EveryFault, ActsOnOneRankExactlyWhereItSaysSo) {
  const FaultChoice& choice = GetParam();
  const Case c = hand_picked("seed", "seed");
  const bool applies = !choice.fault->why_inapplicable(c, choice.argument);
  // Where it cannot act on two ranks either, the reason is another one.
  if (!applies && choice.fault->why_inapplicable(hand_picked("seed", "seed:tp2"), choice.argument)) return;
  Workbench bench(c);
  const auto forced = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
  const auto& oracles = choice.fault->oracles;
  for (const Oracle oracle : {Oracle::layout, Oracle::tree, Oracle::native}) {
    const bool declared = std::ranges::find(oracles, oracle) != oracles.end();
    if (applies && !declared) continue;
    EXPECT_EQ(bench.judge(oracle, *forced).verdict, applies ? Verdict::failed : Verdict::passed)
        << to_string(oracle);
  }
}

TEST_P(EveryFault, LeavesSplitAlone) {
  const FaultChoice& choice = GetParam();
  const Case c = applicable_case(choice);
  Workbench bench(c);
  const auto faulty = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
  const ShardedTensors right = split(bench.weights(), bench.target());
  EXPECT_FALSE(
      Workbench::first_difference(bench.target(), right, faulty->split(bench.weights(), bench.target())));
}

std::vector<FaultChoice> choices_that(bool act_on_effective_weights) {
  auto choices = every_choice();
  std::erase_if(choices, [&](const FaultChoice& choice) {
    return (choice.fault->effective != nullptr) != act_on_effective_weights;
  });
  return choices;
}

std::string test_name(const testing::TestParamInfo<FaultChoice>& info) {
  std::string name = info.param.text();
  std::ranges::replace(name, ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryFault, testing::ValuesIn(choices_that(false)), test_name);

class EveryEffectiveFault : public testing::TestWithParam<FaultChoice> {};

TEST_P(EveryEffectiveFault, IsKilledWhereItActsAndKeepsShapesAndDtypes) {
  const FaultChoice& choice = GetParam();
  std::int64_t acted = 0;
  for (std::uint64_t index = 0; index < 200 && acted < 10; ++index) {
    Case c = choice.fault->judged_on(random_case(index));
    Stream stream(index, "steered");
    if (choice.fault->steer != nullptr) choice.fault->steer(c, stream);
    if (choice.fault->why_inapplicable(c, choice.argument)) continue;
    EXPECT_EQ(judge_effective(c).verdict, Verdict::passed)
        << print_case(c) << ' ' << judge_effective(c).message;
    const ShardedTensors right = effective_model(c.effective).delivered(c);
    const ShardedTensors faulty = choice.fault->effective(c, choice.argument);
    ASSERT_EQ(right.size(), faulty.size());
    for (const auto& [name, ranks] : right) {
      const auto& others = faulty.at(name);
      ASSERT_EQ(ranks.size(), others.size()) << name;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].shape(), others[rank].shape()) << name;
        EXPECT_EQ(ranks[rank].dtype(), others[rank].dtype()) << name;
      }
    }
    const bool equivalent =
        choice.fault->equivalent != nullptr && choice.fault->equivalent(c, choice.argument);
    c.fault = choice.text();
    EXPECT_EQ(judge_effective(c).verdict, equivalent ? Verdict::passed : Verdict::failed) << print_case(c);
    acted += equivalent ? 0 : 1;
  }
  EXPECT_EQ(acted, 10) << "cases in which it acts";
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryEffectiveFault, testing::ValuesIn(choices_that(true)), test_name);

}  // namespace
}  // namespace shardcheck
