// What the measured power must show whatever its figures are.
#include "shardcheck/properties/detection_power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "shardcheck/model/geometry.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Rate, HasTheWilsonIntervalOfItsTrials) {
  // Figures of Wilson (1927), as printed by R's binom::binom.confint(method = "wilson").
  EXPECT_NEAR((Rate{0, 10}.high()), 0.2775328, 1e-6);
  EXPECT_NEAR((Rate{10, 10}.low()), 0.7224672, 1e-6);
  EXPECT_NEAR((Rate{50, 100}.low()), 0.4038315, 1e-6);
  EXPECT_NEAR((Rate{50, 100}.high()), 0.5961685, 1e-6);
}

TEST(Rate, LiesInsideItsIntervalWhichNarrowsWithTrialsAndIsEverythingWithoutOne) {
  EXPECT_EQ(Rate().low(), 0.0);
  EXPECT_EQ(Rate().high(), 1.0);
  double wider = 1.0;
  for (const std::int64_t trials : {10, 100, 1000}) {
    for (std::int64_t detected = 0; detected <= trials; detected += trials / 10) {
      const Rate rate{detected, trials};
      EXPECT_LE(rate.low(), rate.share());
      EXPECT_GE(rate.high(), rate.share());
    }
    const Rate half{trials / 2, trials};
    EXPECT_LT(half.high() - half.low(), wider);
    wider = half.high() - half.low();
  }
}

PowerOptions options_for(const std::vector<std::string>& faults) {
  PowerOptions options;
  options.seed = 3;
  options.cases = 2;
  options.jobs = 2;
  for (const std::string& fault : faults) options.faults.push_back(parse_fault(fault));
  return options;
}

const SmallestModel& model_of(const FaultPower& power, std::string_view judge) {
  return *std::ranges::find(power.models, judge, &SmallestModel::judge);
}

std::int64_t parameters_of(const Geometry& geometry) {
  std::int64_t count = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) count += element_count(tensor.shape);
  return count;
}

TEST(MeasureFaults, TheMinimalCaseShowsTheFaultAndPassesWithoutIt) {
  for (const FaultPower& power :
       measure_faults(options_for({"slice_fused_qkv_contiguously", "missing_all_reduce:down"}))) {
    EXPECT_THAT(power.problems(), IsEmpty());
    for (const char* judge : {"exact", "tree", "native"}) {
      const SmallestModel& model = model_of(power, judge);
      ASSERT_TRUE(model.detected) << power.fault << " " << judge;
      Case c = parse_case(model.minimal);
      EXPECT_EQ(to_string(c.arithmetic), judge);
      EXPECT_EQ(parameters_of(c.geometry), model.parameters);
      EXPECT_EQ(check_case(law_named(c.law), c).verdict, Verdict::failed) << model.minimal;
      c.fault.clear();
      EXPECT_EQ(check_case(law_named(c.law), c).verdict, Verdict::passed) << model.minimal;
    }
  }
}

TEST(MeasureFaults, AFaultThatALawAloneSeesHasThatLawsCase) {
  const std::vector<FaultPower> rows = measure_faults(options_for({"split_by_batch_size"}));
  ASSERT_EQ(rows.size(), 1U);
  const SmallestModel& model = rows[0].models.at(0);
  EXPECT_EQ(model.judge, "batch_is_invisible");
  EXPECT_EQ(check_case(law_named(model.judge), parse_case(model.minimal)).verdict, Verdict::failed);
  EXPECT_FALSE(rows[0].exact);
}

TEST(MeasureFaults, BytesAreSharpestAndBitsSharperThanAThreshold) {
  for (const FaultPower& power : measure_faults(
           options_for({"rotate_norm_by_rank", "swap_k_and_v", "norm_entry_off_by_one_percent"}))) {
    ASSERT_TRUE(power.layout && power.exact && power.native) << power.fault;
    EXPECT_EQ(power.exact->cases, 2);
    EXPECT_GE(power.layout->least, power.exact->least) << power.fault;
    EXPECT_GT(power.exact->least, power.native->largest) << power.fault;
    EXPECT_GE(power.native->least, 0) << power.fault;
    EXPECT_LE(power.layout->least, power.layout->largest);
  }
}

TEST(MeasureFaults, OnlyFaultsOfFiniteShardsHaveAnAmplitude) {
  for (const FaultPower& power :
       measure_faults(options_for({"missing_all_reduce:down", "poison_unsampled_embedding_rows"}))) {
    EXPECT_FALSE(power.layout || power.exact || power.native) << power.fault;
  }
}

TEST(MeasureFaults, DoNotDependOnTheJobs) {
  PowerOptions options = options_for({"flip_one_bit", "swap_gate_and_up", "rotate_norm_by_rank"});
  const auto text_of = [&](int jobs) {
    options.jobs = jobs;
    std::string text;
    for (const FaultPower& power : measure_faults(options)) {
      for (const SmallestModel& model : power.models) text += model.judge + " " + model.minimal + "\n";
      text +=
          power.fault + " " + std::to_string(power.exact->least) + " " + std::to_string(power.native->least);
    }
    return text;
  };
  EXPECT_EQ(text_of(1), text_of(3));
}

TEST(FaultPower, AJudgeThatHasToSeeTheFaultAndDoesNotIsAProblem) {
  FaultPower power;
  power.fault = "flip_one_bit";
  power.models = {{.judge = "layout", .expected = true, .cases = 5}, {.judge = "native", .cases = 5}};
  EXPECT_THAT(power.problems(), ElementsAre("flip_one_bit is not seen by layout in 5 cases"));
  power.models[0].cases = 0;
  EXPECT_THAT(power.problems(), IsEmpty()) << "it acted in no case";
}

TEST(MeasureHardPlaces, LayoutSeesEveryOneAndThresholdsNoneOfAnUlp) {
  PowerOptions options;
  options.jobs = 2;
  std::int64_t below_threshold = 0, beyond_logits = 0;
  for (const HardPlace& place : measure_hard_places(options)) {
    EXPECT_THAT(place.problems(), IsEmpty());
    EXPECT_EQ(place.layout.verdict, Verdict::failed) << place.name;
    if (place.mistake.find("1 ULP") != std::string_view::npos) {
      EXPECT_EQ(place.native.verdict, Verdict::passed) << place.name;
      ++below_threshold;
    }
    // Where bits agree a deviation cannot be seen either.
    if (place.exact.verdict == Verdict::passed) {
      EXPECT_EQ(place.native.verdict, Verdict::passed);
    }
    beyond_logits += place.reaches_logits ? 0 : 1;
  }
  EXPECT_GE(below_threshold, 4);
  EXPECT_GE(beyond_logits, 1);
}

TEST(HardPlace, IsAProblemWhereLayoutIsBlindOrLogitsCannotDiffer) {
  HardPlace place;
  place.name = "somewhere";
  place.layout = Outcome::pass();
  EXPECT_THAT(place.problems(), ElementsAre("somewhere: layout says passed"));
  place.layout = place.exact = Outcome::fail("differs");
  EXPECT_THAT(place.problems(), IsEmpty());
  place.reaches_logits = false;
  EXPECT_THAT(place.problems(), ElementsAre("somewhere: logits differ that cannot"));
}

const std::vector<RolePower>& roles_of_two_models() {
  static const std::vector<RolePower> rows = [] {
    PowerOptions options;
    options.seed = 8;
    options.trials = 2;
    options.jobs = 2;
    return measure_roles(options);
  }();
  return rows;
}

TEST(MeasureRoles, LayoutSeesEveryChangeAlsoOfWhatNoLogitDependsOn) {
  for (const RolePower& role : roles_of_two_models()) {
    EXPECT_THAT(role.problems(), IsEmpty());
    for (const Rate& rate : role.layout) EXPECT_EQ(rate.detected, rate.trials) << role.role;
    EXPECT_GT(role.layout[0].trials, 0) << role.role;
  }
}

TEST(MeasureRoles, ExactSeesEveryWholeShardThatALogitDependsOn) {
  for (const RolePower& role : roles_of_two_models()) {
    const Rate& shard = role.exact[static_cast<std::size_t>(Change::shard)];
    if (!role.reaches_logits) {
      for (const Rate& rate : role.exact) EXPECT_EQ(rate.detected, 0) << role.role;
      continue;
    }
    EXPECT_EQ(shard.detected, 2) << role.family << " " << role.role;
    EXPECT_EQ(shard.trials, 2);
  }
}

TEST(MeasureRoles, HoldEveryRoleOfTheirFamilies) {
  std::set<std::string> measured;
  for (const RolePower& role : roles_of_two_models()) measured.insert(role.role);
  for (const char* role : {"q",
                           "k",
                           "v",
                           "q_bias",
                           "k_bias",
                           "v_bias",
                           "o_proj",
                           "o_bias",
                           "sinks",
                           "gate",
                           "up",
                           "down",
                           "attn_norm",
                           "ffn_norm",
                           "q_norm",
                           "k_norm",
                           "final_norm",
                           "lm_head",
                           "embed",
                           "router",
                           "router_bias",
                           "expert_gate",
                           "expert_up",
                           "expert_down",
                           "shared_gate",
                           "shared_up",
                           "shared_down",
                           "positions",
                           "up_bias",
                           "down_bias",
                           "attn_norm_bias",
                           "embed, unused",
                           "expert_up, unused"})
    EXPECT_TRUE(measured.contains(role)) << role;
}

TEST(RolePower, AMissedChangeUnderLayoutOrAMissedShardUnderExactIsAProblem) {
  RolePower role{.family = "llama", .role = "q"};
  role.layout = {Rate{9, 10}, Rate{10, 10}, Rate{10, 10}};
  role.exact = {Rate{3, 10}, Rate{9, 10}, Rate{9, 10}};
  EXPECT_THAT(role.problems(), ElementsAre("llama q: layout sees 9 of 10 changes of one element",
                                           "llama q: exact sees 9 of 10 changes of one shard"));
  role.layout[0].detected = role.exact[2].detected = 10;
  EXPECT_THAT(role.problems(), IsEmpty());
  role.reaches_logits = false;
  EXPECT_THAT(role.problems().size(), 3U);
}

}  // namespace
}  // namespace shardcheck
