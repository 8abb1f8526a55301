#include "shardcheck/mutators/effective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "random_cases.h"
#include "shardcheck/mutators/fault.h"

namespace shardcheck {
namespace {

using testing::HasSubstr;

class EffectiveWeightsOverRanks : public testing::TestWithParam<EffectiveKind> {
 protected:
  static Case over(const char* target) {
    Case c = hand_picked("seed", target);
    c.law = kEffectiveLaw;
    c.effective = GetParam();
    return c;
  }
};

TEST_P(EffectiveWeightsOverRanks, AreRightAtAnyDegree) {
  for (const char* target : {"seed:tp2", "seed:tp3", "seed:tp7", "seed:tp12", "seed:tp64"}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Case c = over(target);
      c.seed = seed;
      const Outcome outcome = judge_effective(c);
      EXPECT_EQ(outcome.verdict, Verdict::passed) << target << ' ' << outcome.message;
      if (c.target.tp_degree() == 64) break;  // takes long, and shows that it ends
    }
  }
}

TEST_P(EffectiveWeightsOverRanks, DependOnTheSeed) {
  Case c = over("seed:tp2"), other = c;
  other.seed = c.seed + 1;
  const EffectiveModel& model = effective_model(GetParam());
  const ShardedTensors one = model.expected(c), two = model.expected(other);
  EXPECT_TRUE(std::ranges::any_of(
      one, [&](const auto& entry) { return !entry.second.front().same_bytes(two.at(entry.first).front()); }));
}

TEST_P(EffectiveWeightsOverRanks, AreSkippedWithAReasonOverOneRankAndOverTooMany) {
  for (const char* target : {"seed", "seed:tp65"}) {
    const Outcome outcome = judge_effective(over(target));
    EXPECT_EQ(outcome.verdict, Verdict::skipped) << target;
    EXPECT_THAT(outcome.message, HasSubstr("rank"));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EffectiveWeightsOverRanks,
                         testing::Values(EffectiveKind::quantized, EffectiveKind::adapter,
                                         EffectiveKind::state_space, EffectiveKind::latent,
                                         EffectiveKind::gradient, EffectiveKind::optimizer),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST(JudgeEffective, NamesTensorRankAndElement) {
  Case c = hand_picked("seed", "seed:tp2");
  c.law = kEffectiveLaw;
  c.effective = EffectiveKind::state_space;
  c.fault = "conv_channels_not_sliced";
  const Outcome outcome = judge_effective(c);
  ASSERT_EQ(outcome.verdict, Verdict::failed);
  ASSERT_TRUE(outcome.difference.has_value());
  EXPECT_EQ(outcome.difference->parameter, "layers.0.conv1d");
  EXPECT_EQ(outcome.difference->target_degree, 2);
  EXPECT_GE(outcome.difference->rank, 0);
  EXPECT_GE(outcome.difference->worst_index, 0);
}

TEST(JudgeEffective, SkipsACaseThatNamesNoWeights) {
  EXPECT_EQ(judge_effective(hand_picked("seed", "seed:tp2")).verdict, Verdict::skipped);
}

}  // namespace
}  // namespace shardcheck
