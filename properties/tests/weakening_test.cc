// Each check is needed: weakened as people weaken it, it lets a fault pass that it sees as it is.
#include "shardcheck/properties/weakening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "shardcheck/mutators/effective.h"

namespace shardcheck {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A fault that survives each weakened check.
const std::map<std::string_view, const char*>& witnesses() {
  static const std::map<std::string_view, const char*> all = {
      {"shapes_and_dtypes", "slice_fused_qkv_contiguously"},
      {"skip_norms_and_biases", "rotate_norm_by_rank"},
      {"sums", "slice_fused_qkv_contiguously"},
      {"row_multisets", "slice_fused_qkv_contiguously"},
      {"round_trip", "slice_fused_qkv_contiguously"},
      {"rank_zero", "every_rank_loads_shard_zero"},
      {"equal_layouts", "every_rank_loads_shard_zero"},
      {"target_not_randomised", "stale_bucket"},
      {"sampled_logits", "flip_one_bit"},
      {"one_token", "non_causal_mask_on_one_rank"},
      {"default_initialisation", "rotate_norm_by_rank"},
      {"equal_widths", "gqa_tile_for_repeat"},
      {"one_rank", "missing_all_reduce:down"},
      {"greedy_tokens", "narrow_one_layer_to_f16"},
      {"tolerance_times_1000", "norm_entry_off_by_one_percent"},
      {"power_of_ten_in_bf16", "zero_o_proj_output"},
  };
  return all;
}

/// The witnesses, and faults that weakened checks still see.
std::vector<FaultChoice> some_faults() {
  std::set<std::string> names = {"skip_parameter:lm_head", "transpose_square_o_proj", "swap_k_and_v",
                                 "replicated_gradient_not_summed"};
  for (const auto& [weakening, fault] : witnesses()) names.insert(fault);
  std::vector<FaultChoice> choices;
  for (const std::string& name : names) choices.push_back(parse_fault(name));
  return choices;
}

WeakeningOptions few_cases() {
  WeakeningOptions options;
  options.seed = 2;
  options.cases = 3;
  options.jobs = 2;
  options.faults = some_faults();
  return options;
}

const std::vector<WeakeningReport>& reports() {
  static const std::vector<WeakeningReport> all = weaken(few_cases());
  return all;
}

const WeakeningReport& report_of(std::string_view name) {
  return *std::ranges::find(reports(), name, [](const WeakeningReport& r) { return r.weakening->name; });
}

const WeakenedFault* fault_in(const WeakeningReport& report, std::string_view fault) {
  const auto found = std::ranges::find(report.faults, fault, &WeakenedFault::fault);
  return found == report.faults.end() ? nullptr : &*found;
}

TEST(Weakenings, EachSaysWhatItWeakensAndWhoDoesSoUnderANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Weakening& weakening : all_weakenings()) {
    EXPECT_TRUE(names.insert(weakening.name).second) << weakening.name;
    EXPECT_EQ(&weakening_named(weakening.name), &weakening);
    EXPECT_TRUE(weakening.weakened.ends_with('.')) << weakening.name;
    EXPECT_FALSE(weakening.practice.empty()) << weakening.name;
    EXPECT_TRUE(witnesses().contains(weakening.name)) << weakening.name;
  }
  EXPECT_EQ(names.size(), witnesses().size());
}

TEST(Weakenings, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    weakening_named("sum");
    FAIL();
  } catch (const InvalidInput& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("weakening 'sum' is not known; did you mean sums?"));
  }
}

TEST(Weaken, EachCheckIsNeeded) {
  ASSERT_EQ(reports().size(), all_weakenings().size());
  for (const WeakeningReport& report : reports()) {
    EXPECT_THAT(report.problems(), IsEmpty());
    const char* witness = witnesses().at(report.weakening->name);
    const WeakenedFault* fault = fault_in(report, witness);
    ASSERT_NE(fault, nullptr) << report.weakening->name << " " << witness;
    EXPECT_TRUE(fault->survives()) << report.weakening->name << " " << witness << ": " << fault->still_seen;
  }
}

TEST(Weaken, NoWeakenedCheckFlagsARightSubject) {
  for (const WeakeningReport& report : reports()) {
    EXPECT_EQ(report.false_alarms, 0) << report.weakening->name;
    EXPECT_GT(report.cases, 0) << report.weakening->name;
  }
}

// A weakened check that sees nothing at all would prove nothing.
TEST(Weaken, AWeakenedCheckStillSeesWhatItLooksAt) {
  const std::map<std::string_view, const char*> seen = {
      {"skip_norms_and_biases", "swap_k_and_v"},
      {"sums", "skip_parameter:lm_head"},
      {"row_multisets", "transpose_square_o_proj"},
      {"round_trip", "every_rank_loads_shard_zero"},
      {"rank_zero", "swap_k_and_v"},
      {"target_not_randomised", "swap_k_and_v"},
      {"sampled_logits", "skip_parameter:lm_head"},
      {"one_token", "missing_all_reduce:down"},
      {"default_initialisation", "non_causal_mask_on_one_rank"},
      {"equal_widths", "swap_k_and_v"},
      {"one_rank", "swap_k_and_v"},
      {"greedy_tokens", "skip_parameter:lm_head"},
      {"tolerance_times_1000", "zero_o_proj_output"},
  };
  for (const auto& [name, fault] : seen) {
    const WeakenedFault* row = fault_in(report_of(name), fault);
    ASSERT_NE(row, nullptr) << name << " " << fault;
    EXPECT_EQ(row->still_seen, row->seen) << name << " " << fault;
  }
}

TEST(Weaken, TheExampleIsSeenByTheOracleAsItIs) {
  for (const WeakeningReport& report : reports()) {
    for (const WeakenedFault& fault : report.faults) {
      ASSERT_EQ(fault.example.empty(), fault.still_seen == fault.seen);
      if (fault.example.empty()) continue;
      const Case c = parse_case(fault.example);
      const Verdict verdict = c.effective == EffectiveKind::none
                                  ? Workbench(c).judge(report.weakening->oracle, *subject_of(c)).verdict
                                  : judge_effective(c).verdict;
      EXPECT_EQ(verdict, Verdict::failed) << report.weakening->name << ": " << fault.example;
    }
  }
}

TEST(Weaken, WeightsThatNoForwardPassReadsAreComparedToo) {
  const WeakenedFault* fault = fault_in(report_of("skip_norms_and_biases"), "replicated_gradient_not_summed");
  ASSERT_NE(fault, nullptr);
  EXPECT_TRUE(fault->survives());
  EXPECT_EQ(fault_in(report_of("one_token"), "replicated_gradient_not_summed"), nullptr);
}

TEST(Weaken, DoesNotDependOnTheJobs) {
  WeakeningOptions options = few_cases();
  options.cases = 1;
  options.weakenings = {&weakening_named("sums"), &weakening_named("one_token")};
  const auto text_of = [&](int jobs) {
    options.jobs = jobs;
    std::string text;
    for (const WeakeningReport& report : weaken(options)) {
      for (const WeakenedFault& fault : report.faults)
        text += fault.fault + " " + std::to_string(fault.still_seen) + " " + fault.example + "\n";
    }
    return text;
  };
  EXPECT_EQ(text_of(1), text_of(3));
}

TEST(WeakeningReport, WithoutASurvivorOrWithAFalseAlarmIsAProblem) {
  WeakeningReport report;
  report.weakening = &weakening_named("sums");
  report.faults = {{.fault = "a", .cases = 2, .seen = 2, .still_seen = 1, .example = ""}};
  EXPECT_THAT(report.problems(), ElementsAre("sums: no fault survives"));
  report.faults.push_back({.fault = "b", .cases = 2, .seen = 2, .still_seen = 0, .example = ""});
  EXPECT_THAT(report.problems(), IsEmpty());
  report.cases = 5;
  report.false_alarms = 1;
  EXPECT_THAT(report.problems(), ElementsAre("sums: right shards are flagged in 1 of 5 cases"));
}

}  // namespace
}  // namespace shardcheck
