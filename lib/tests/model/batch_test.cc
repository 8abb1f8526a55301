#include "shardcheck/model/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Geometry geometry(std::int64_t positions = 0) {
  Geometry g;
  g.vocab = 10;
  g.positions = positions;
  return g;
}

std::string refusal_of(const BatchStep& step, const Geometry& g = geometry()) {
  try {
    require_step_of(g, step);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BatchStep, OfTokensHasEverySequenceAsAWhole) {
  const BatchStep step = whole_step({2, 3, {1, 2, 3, 4, 5, 6}});
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].sequence, 0);
  EXPECT_EQ(step[0].ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(step[1].sequence, 1);
  EXPECT_EQ(step[1].first, 0);
  EXPECT_EQ(step[1].ids, (std::vector<std::int32_t>{4, 5, 6}));
  EXPECT_EQ(row_count(step), 6);
  EXPECT_EQ(row_count({}), 0);
  EXPECT_EQ(row_count({{0, 0, {1}}, {9, 4, {1, 2}}}), 3);
}

TEST(BatchStep, RefusalsNameChunkFieldValueAndWhatIsAllowed) {
  const BatchStep right = {{3, 0, {1, 9}}, {0, 5, {0}}};
  EXPECT_EQ(refusal_of(right), "accepted");
  EXPECT_THAT(refusal_of({}), AllOf(HasSubstr("no chunk"), HasSubstr("at least one")));
  EXPECT_THAT(refusal_of({{0, 0, {1}}, {-2, 0, {1}}}),
              AllOf(HasSubstr("chunk 1"), HasSubstr("sequence=-2"), HasSubstr("0 and above")));
  EXPECT_THAT(refusal_of({{4, 0, {1}}, {4, 1, {1}}}),
              AllOf(HasSubstr("chunk 1"), HasSubstr("sequence=4"), HasSubstr("each once")));
  EXPECT_THAT(refusal_of({{0, 0, {}}}),
              AllOf(HasSubstr("chunk 0"), HasSubstr("tokens=0"), HasSubstr("at least one")));
  for (const std::int32_t id : {-1, 10, std::numeric_limits<std::int32_t>::max()})
    EXPECT_THAT(refusal_of({{0, 0, {1, id}}}),
                AllOf(HasSubstr("token id=" + std::to_string(id)), HasSubstr("0..9")));
  for (const std::int64_t first :
       {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 20})
    EXPECT_THAT(refusal_of({{0, first, {1}}}),
                AllOf(HasSubstr("first=" + std::to_string(first)), HasSubstr("0..1048575")));
  EXPECT_EQ(refusal_of({{0, (1 << 20) - 1, {1}}}), "accepted");
}

TEST(BatchStep, EndsWithTheLearnedPositions) {
  EXPECT_EQ(refusal_of({{0, 0, {1, 2, 3, 4}}}, geometry(4)), "accepted");
  EXPECT_EQ(refusal_of({{0, 2, {1, 2}}}, geometry(4)), "accepted");
  EXPECT_THAT(refusal_of({{0, 3, {1, 2}}}, geometry(4)),
              AllOf(HasSubstr("first=3"), HasSubstr("0..2 for 2 tokens and 4 positions")));
  EXPECT_THAT(refusal_of({{0, 0, {1, 2, 3, 4, 5}}}, geometry(4)),
              AllOf(HasSubstr("tokens=5"), HasSubstr("at most 4")));
}

}  // namespace
}  // namespace shardcheck
