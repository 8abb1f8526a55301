#include "shardcheck/tolerance/comparator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace shardcheck {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor matrix(std::int64_t rows, std::vector<float> values) {
  return Tensor::from({rows, static_cast<std::int64_t>(values.size()) / rows}, values);
}

TEST(CompareLogits, AcceptsTheSameTensor) {
  const Tensor x = matrix(2, {1, -2, 3, 4, 5, 6});
  const Comparison c = compare_logits(x, x);
  EXPECT_EQ(c.max_abs, 0.0);
  EXPECT_EQ(c.median_abs, 0.0);
  EXPECT_EQ(c.mean_abs, 0.0);
  EXPECT_EQ(c.relative_l2, 0.0);
  EXPECT_EQ(c.angle, 0.0);
  EXPECT_EQ(c.differing_bits, 0);
  EXPECT_EQ(c.vacuous, "");
}

TEST(CompareLogits, RejectsTwiceAnyThreshold) {
  for (const double threshold : {1e-6, 1e-3, 1.0}) {
    const Tensor expected = matrix(1, {0.5F, 1.0F, -1.0F, 0.25F});
    Tensor actual = expected;
    actual.mutable_f32()[2] += static_cast<float>(2 * threshold);
    const Comparison c = compare_logits(expected, actual);
    EXPECT_FALSE(c.max_abs < threshold);
    EXPECT_NEAR(c.max_abs, 2 * threshold, kUlp);
    EXPECT_NEAR(c.max_ulp() * kUlp, c.max_abs, 1e-15);
  }
}

TEST(CompareLogits, NamesTheWorstElementAndItsToken) {
  const Tensor expected = matrix(3, {1, 2, 3, 4, 5, 6});
  const Tensor actual = matrix(3, {1, 2.5F, 3, 4, 4, 6});
  const Comparison c = compare_logits(expected, actual);
  EXPECT_EQ(c.worst_index, 4);
  EXPECT_EQ(c.worst_row, 2);
  EXPECT_EQ(c.expected, 5.0F);
  EXPECT_EQ(c.actual, 4.0F);
  EXPECT_EQ(c.differing_bits, 2);
}

TEST(CompareLogits, MedianIsTheLowerOfTheTwoMiddleValues) {
  const Tensor expected = matrix(1, {1, 2, 3, 4});
  const Tensor actual = matrix(1, {1, 2.125F, 3.25F, 4.5F});  // differences 0, 1/8, 1/4, 1/2
  const Comparison c = compare_logits(expected, actual);
  EXPECT_EQ(c.median_abs, 0.125);
  EXPECT_EQ(c.mean_abs, 0.875 / 4);
  const Comparison odd = compare_logits(matrix(1, {1, 2, 3}), matrix(1, {1.5F, 2, 3.25F}));
  EXPECT_EQ(odd.median_abs, 0.25);
}

TEST(CompareLogits, RelativeDistanceAndAngleMeasureLengthAndDirection) {
  const Comparison scaled = compare_logits(matrix(1, {3, 4}), matrix(1, {6, 8}));
  EXPECT_DOUBLE_EQ(scaled.relative_l2, 1.0);
  EXPECT_NEAR(scaled.angle, 0.0, 1e-12);
  const Comparison turned = compare_logits(matrix(1, {3, 4}), matrix(1, {-4, 3}));
  EXPECT_NEAR(turned.angle, std::numbers::pi / 2, 1e-12);
}

TEST(CompareLogits, SmallAnglesAreNotLost) {
  const Comparison c = compare_logits(matrix(1, {1, 0.5F}), matrix(1, {1, 0.5F + 0x1p-24F}));
  EXPECT_GT(c.angle, 0.0);
  EXPECT_LT(c.angle, 1e-7);
}

TEST(CompareLogits, NaNAndInfinityAreInfinitelyFarAlsoOnBothSides) {
  for (const float bad : {kNaN, kInf, -kInf}) {
    const Tensor right = matrix(1, {1, 2, 3});
    Tensor wrong = right;
    wrong.mutable_f32()[1] = bad;
    for (const auto& [expected, actual] :
         {std::pair(right, wrong), std::pair(wrong, right), std::pair(wrong, wrong)}) {
      const Comparison c = compare_logits(expected, actual);
      EXPECT_TRUE(std::isinf(c.max_abs));
      EXPECT_EQ(c.worst_index, 1);
    }
    EXPECT_EQ(compare_logits(right, wrong).vacuous, "");
    EXPECT_NE(compare_logits(wrong, right).vacuous, "");
  }
}

TEST(CompareLogits, SignedZerosDifferInBitsAndNotInValue) {
  const Comparison c = compare_logits(matrix(1, {0.0F, 1}), matrix(1, {-0.0F, 1}));
  EXPECT_EQ(c.max_abs, 0.0);
  EXPECT_EQ(c.differing_bits, 1);
}

TEST(CompareLogits, FlagsAnOutputThatShowsNothing) {
  const auto vacuous = [](std::vector<float> values) {
    const Tensor x = matrix(1, std::move(values));
    return !compare_logits(x, x).vacuous.empty();
  };
  EXPECT_TRUE(vacuous({0, 0, 0, 0}));
  EXPECT_TRUE(vacuous({7, 7, 7}));
  EXPECT_TRUE(vacuous({7}));
  EXPECT_TRUE(vacuous({1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));  // 90 % zeros
  EXPECT_TRUE(vacuous({3, 5, 5, 5, 5, 5, 5, 5, 5, 5}));  // or of any one value
  EXPECT_FALSE(vacuous({1, 0, 2, 0.5F, 3}));
  const Tensor empty = Tensor::zeros(DType::f32, {0, 4});
  EXPECT_FALSE(compare_logits(empty, empty).vacuous.empty());
}

/// Distinct values but for what a test makes equal.
std::vector<float> distinct(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 1.0F + static_cast<float>(i);
  return values;
}

std::string why_vacuous(const Tensor& expected) { return compare_logits(expected, expected).vacuous; }

TEST(CompareLogits, MemoryNobodyWroteIsNoEvidence) {
  const Tensor right = matrix(4, distinct(24));
  EXPECT_EQ(why_vacuous(right), "");
  Tensor unwritten = right;
  unwritten.set_bits(5, Tensor::poisoned(DType::f32, {1}).bits(0));
  EXPECT_THAT(why_vacuous(unwritten), testing::HasSubstr("not written"));
  EXPECT_TRUE(std::isinf(compare_logits(right, unwritten).max_abs));
}

/// Overwrites the block of `width` columns at `to` by the one at `from` in the first `rows` rows.
void copy_columns(std::vector<float>& values, std::ptrdiff_t columns, std::ptrdiff_t rows,
                  std::ptrdiff_t width, std::ptrdiff_t from, std::ptrdiff_t to) {
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * columns + from, width, values.begin() + row * columns + to);
  }
}

// Ranks cut the vocabulary: where two of the blocks are equal, exchanging them would not show.
TEST(CompareLogits, EqualBlocksOfTheVocabularyHideAnExchange) {
  constexpr std::ptrdiff_t kRows = 5, kWidth = 9;
  for (const std::ptrdiff_t parts : {2, 3, 4, 8}) {
    for (const std::ptrdiff_t missing : {0, 1}) {  // of the last block
      const std::ptrdiff_t columns = parts * kWidth - missing, last = (parts - 1 - missing) * kWidth;
      if (last == 0) continue;
      std::vector<float> values = distinct(static_cast<std::size_t>(kRows * columns));
      copy_columns(values, columns, kRows - 1, kWidth, 0, last);
      EXPECT_EQ(why_vacuous(matrix(kRows, values)), "") << "one token still tells them apart";
      copy_columns(values, columns, kRows, kWidth, 0, last);
      EXPECT_THAT(why_vacuous(matrix(kRows, values)), testing::HasSubstr("vocabulary")) << columns;
    }
  }
}

TEST(CompareLogits, EqualBlocksOfTokensHideAnExchange) {
  std::vector<float> values = distinct(8 * 7);
  std::copy_n(values.begin() + 2 * 7, 2 * 7, values.begin() + 6 * 7);
  EXPECT_THAT(why_vacuous(matrix(8, values)), testing::HasSubstr("tokens"));
  // An output that does not depend on its input.
  for (int row = 1; row < 8; ++row) std::copy_n(values.begin(), 7, values.begin() + row * 7);
  EXPECT_THAT(why_vacuous(matrix(8, values)), testing::HasSubstr("tokens"));
}

TEST(CompareLogits, AFewEqualTokensAmongManyHideNothing) {
  std::vector<float> values = distinct(32 * 7);
  std::copy_n(values.begin(), 7, values.begin() + 7);
  EXPECT_EQ(why_vacuous(matrix(32, values)), "");
}

TEST(CompareRanks, TheFarthestRankSpeaksWhicheverItIs) {
  const Tensor right = matrix(2, distinct(10));
  for (std::size_t far = 0; far < 5; ++far) {
    std::vector<Tensor> logits(5, right);
    for (std::size_t rank = 0; rank < 5; ++rank) {
      logits[rank].mutable_f32()[rank] += rank == far ? 4.0F : 0.25F;
    }
    logits[(far + 1) % 5].mutable_f32()[9] += 0.125F;
    const RankComparison ranks = compare_ranks(right, logits);
    EXPECT_EQ(ranks.worst_rank, static_cast<int>(far));
    EXPECT_EQ(ranks.worst.max_abs, 4.0);
    EXPECT_EQ(ranks.worst.worst_index, static_cast<std::int64_t>(far));
    EXPECT_EQ(ranks.worst.differing_bits, 2) << "the most of any rank";
    EXPECT_EQ(ranks.dissenting_rank, 1);
  }
}

TEST(CompareRanks, RanksThatAgreeDissentNowhere) {
  const Tensor right = matrix(2, distinct(10));
  Tensor wrong = right;
  wrong.mutable_f32()[3] += 1.0F;
  const RankComparison ranks = compare_ranks(right, {wrong, wrong, wrong});
  EXPECT_EQ(ranks.dissenting_rank, -1);
  EXPECT_EQ(ranks.worst_rank, 0);
  EXPECT_EQ(ranks.worst.max_abs, 1.0);
  EXPECT_THROW(compare_ranks(right, {}), std::invalid_argument);
}

TEST(CompareLogits, OnlyTheExpectedSideDecidesWhetherAComparisonMeansSomething) {
  const Comparison c = compare_logits(matrix(1, {1, 2, 3}), matrix(1, {0, 0, 0}));
  EXPECT_EQ(c.vacuous, "");
  EXPECT_EQ(c.max_abs, 3.0);
}

TEST(CompareLogits, RefusesOtherShapesAndDtypes) {
  const Tensor x = matrix(1, {1, 2});
  EXPECT_THROW(compare_logits(x, matrix(2, {1, 2})), std::invalid_argument);
  EXPECT_THROW(compare_logits(x, x.to(DType::bf16)), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
