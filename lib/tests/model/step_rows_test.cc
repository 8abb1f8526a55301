#include "model/step_rows.h"

#include <gtest/gtest.h>

#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

SequenceChunk chunk(std::int64_t sequence, std::int64_t first, std::int64_t count) {
  return {sequence, first, std::vector<std::int32_t>(static_cast<std::size_t>(count))};
}

TEST(StepRows, OneRankHasEveryRowInTheOrderOfTheStep) {
  const StepRows rows({chunk(4, 3, 2), chunk(1, 0, 3)}, {});
  EXPECT_EQ(rows.rows(), 5);
  EXPECT_EQ(rows.rows_of(0), 5);
  ASSERT_EQ(rows.runs_of(0).size(), 2U);
  const RowRun& second = rows.runs_of(0)[1];
  EXPECT_EQ(second.sequence, 1);
  EXPECT_EQ(second.first_position, 0);
  EXPECT_EQ(second.rows, 3);
  EXPECT_EQ(second.step_row, 2);
  EXPECT_EQ(second.local_row, 2);
}

TEST(StepRows, ContextRanksHavePositionsAndTheLastOneIsOpen) {
  const std::vector<std::int64_t> ends = {4, 10};
  const StepRows rows({chunk(0, 2, 9)}, ends);
  EXPECT_EQ(rows.rows_of(0), 2);
  EXPECT_EQ(rows.rows_of(1), 6);
  EXPECT_EQ(rows.rows_of(2), 1);
  EXPECT_EQ(rows.first_position(0), 0);
  EXPECT_EQ(rows.first_position(2), 10);
  EXPECT_EQ(rows.last_position(0, 11), 4);
  EXPECT_EQ(rows.last_position(1, 7), 7);
  EXPECT_EQ(rows.last_position(2, 11), 11);
}

/// Random ragged steps: every row of the step lies on one rank, the one that holds its position.
TEST(StepRows, EveryRowLiesOnTheRankOfItsPosition) {
  Stream stream(1, "step rows");
  for (int round = 0; round < 200; ++round) {
    BatchStep step;
    for (std::int64_t i = stream.integer(1, 5); i > 0; --i)
      step.push_back(chunk(10 - i, stream.integer(0, 20), stream.integer(1, 20)));
    std::vector<std::int64_t> ends;
    for (std::int64_t rank = stream.integer(0, 3); rank > 0; --rank)
      ends.push_back((ends.empty() ? 0 : ends.back()) + stream.integer(1, 12));
    const StepRows rows(step, ends);
    std::vector<int> seen(static_cast<std::size_t>(rows.rows()));
    for (int rank = 0; rank <= static_cast<int>(ends.size()); ++rank) {
      std::int64_t local = 0;
      for (const RowRun& run : rows.runs_of(rank)) {
        EXPECT_EQ(run.local_row, local);
        local += run.rows;
        EXPECT_GE(run.first_position, rows.first_position(rank));
        EXPECT_LE(run.first_position + run.rows, rows.last_position(rank, 1000));
        std::int64_t row = 0;
        for (const SequenceChunk& part : step) {
          if (part.sequence == run.sequence) {
            EXPECT_EQ(run.step_row - row, run.first_position - part.first);
            EXPECT_LE(run.step_row - row + run.rows, std::ssize(part.ids));
          }
          row += std::ssize(part.ids);
        }
        for (std::int64_t i = 0; i < run.rows; ++i) ++seen[static_cast<std::size_t>(run.step_row + i)];
      }
      EXPECT_EQ(rows.rows_of(rank), local);
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

TEST(StepRows, SharesAreConsecutiveAndAsEvenAsCanBe) {
  for (const std::int64_t count : {0, 1, 5, 12}) {
    for (const int degree : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int rank = 0; rank < degree; ++rank) {
        const auto [first, last] = StepRows::share(count, degree, rank);
        EXPECT_EQ(first, at);
        EXPECT_GE(last - first, count / degree);
        EXPECT_LE(last - first, (count + degree - 1) / degree);
        at = last;
      }
      EXPECT_EQ(at, count);
    }
  }
}

}  // namespace
}  // namespace shardcheck
