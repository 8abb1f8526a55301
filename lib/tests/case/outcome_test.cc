#include "shardcheck/case/outcome.h"

#include <gtest/gtest.h>

namespace shardcheck {
namespace {

TEST(OutcomeTest, EveryVerdictHasOneSpellingThatReadsBack) {
  for (const Verdict verdict : {Verdict::passed, Verdict::failed, Verdict::vacuous, Verdict::mistrusted,
                                Verdict::skipped, Verdict::timeout, Verdict::error}) {
    EXPECT_EQ(verdict_from(to_string(verdict)), verdict) << to_string(verdict);
  }
}

TEST(OutcomeTest, OtherSpellingsAreNoVerdict) {
  for (const char* text : {"", "pass", "Passed", "passed ", "unknown"}) {
    EXPECT_EQ(verdict_from(text), std::nullopt) << text;
  }
}

TEST(OutcomeTest, AFailureTakesItsDeviationFromTheDifference) {
  Difference difference;
  difference.max_abs = 2.5;
  difference.threshold = 1e-3;
  const Outcome outcome = Outcome::fail("logits differ", difference);
  EXPECT_EQ(outcome.verdict, Verdict::failed);
  EXPECT_EQ(outcome.message, "logits differ");
  EXPECT_EQ(outcome.deviation, 2.5);
  EXPECT_EQ(outcome.threshold, 1e-3);
}

TEST(OutcomeTest, PassHasNoMessageAndNoDifference) {
  const Outcome outcome = Outcome::pass();
  EXPECT_EQ(outcome.verdict, Verdict::passed);
  EXPECT_TRUE(outcome.message.empty());
  EXPECT_FALSE(outcome.difference.has_value());
}

}  // namespace
}  // namespace shardcheck
