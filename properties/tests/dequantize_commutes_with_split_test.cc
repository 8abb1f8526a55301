// The law about quantised weights sees each wrong split in its own format and style, and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantized_subjects.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Messages of the failures among 400 drawn cases.
std::vector<std::string> failures_of(Subject& subject) {
  const Law& law = law_named("dequantize_commutes_with_split");
  std::vector<std::string> messages;
  for (std::uint64_t i = 0; i < 400; ++i) {
    Stream stream(i, law.name);
    const Outcome outcome = check_case(law, law.draw(stream), subject);
    if (outcome.verdict == Verdict::failed) messages.push_back(outcome.message);
  }
  return messages;
}

TEST(QuantizedSplitCanFail, ScalesSlicedUnderActOrder) {
  SlicesScalesUnderActOrder subject;
  const auto failures = failures_of(subject);
  EXPECT_GT(failures.size(), 3U);
  for (const std::string& message : failures)
    EXPECT_THAT(message, AllOf(HasSubstr("act_order) row parallel"), HasSubstr("allowed is i32")));
}

TEST(QuantizedSplitCanFail, GroupIdsRenumberedUnderActOrder) {
  RenumbersGroups subject;
  const auto failures = failures_of(subject);
  EXPECT_GT(failures.size(), 3U);
  for (const std::string& message : failures)
    EXPECT_THAT(message, AllOf(HasSubstr("act_order) row parallel"), HasSubstr("dequantises to")));
}

TEST(QuantizedSplitCanFail, WordsOfAwqCutInsideEight) {
  CutsInsideWords subject;
  const auto failures = failures_of(subject);
  EXPECT_GT(failures.size(), 3U);
  for (const std::string& message : failures)
    EXPECT_THAT(message, AllOf(HasSubstr("awq("), HasSubstr("column parallel")));
  EXPECT_THAT(failures, ::testing::Contains(HasSubstr("accepted")));
}

TEST(QuantizedSplitCanFail, BlockOffsetsRoundedUp) {
  RoundsBlockOffsetsUp subject;
  const auto failures = failures_of(subject);
  EXPECT_GT(failures.size(), 3U);
  for (const std::string& message : failures)
    EXPECT_THAT(message, AllOf(HasSubstr("fp8_block("), HasSubstr("column parallel"), HasSubstr("accepted")));
}

}  // namespace
}  // namespace shardcheck
