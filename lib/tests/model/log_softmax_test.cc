#include "model/log_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shardcheck/arithmetic/functions.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Matrix random_logits(std::int64_t rows, std::int64_t width) {
  Matrix logits(rows, width);
  fill_normal(logits.values, stream_key(3, "logits"), 0.0F, 3.0F);
  return logits;
}

/// The tree over single entries, by its definition.
float tree_sum(TreeShape shape, TreeNode node, std::span<const float> values) {
  if (node.last - node.first == 1) return values[static_cast<std::size_t>(node.first)];
  const std::int64_t split = split_point(shape, node);
  return tree_sum(shape, {node.first, split}, values) + tree_sum(shape, {split, node.last}, values);
}

TEST(RowMaxima, PassOverNanAndTakeColumnsThatAreNotThere) {
  Matrix x(3, 2);
  x.values = {kNan, -2.0F, 1.0F, kInfinity, kNan, kNan};
  EXPECT_EQ(row_maxima(x), (std::vector<float>{-2.0F, kInfinity, -kInfinity}));
  EXPECT_EQ(row_maxima(Matrix(1, 0)), (std::vector<float>{-kInfinity}));
}

class LogSoftmax : public testing::TestWithParam<Arithmetic> {
 protected:
  Numerics numerics(TreeShape shape = TreeShape::halving) const {
    Numerics all{GetParam(), {}};
    all.contract.shape = shape;
    return all;
  }
};

TEST_P(LogSoftmax, IsTheLogarithmOfTheSoftmax) {
  const Matrix logits = random_logits(4, 77);
  Matrix result = logits;
  log_softmax_rows(numerics(), result);
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < logits.width; ++j) sum += std::exp(static_cast<double>(logits.row(i)[j]));
    for (std::int64_t j = 0; j < logits.width; ++j)
      EXPECT_NEAR(result.row(i)[j], static_cast<double>(logits.row(i)[j]) - std::log(sum), 2e-6);
  }
}

TEST_P(LogSoftmax, HugeLogitsDoNotOverflow) {
  Matrix logits(1, 2);
  logits.values = {1000.0F, 999.0F};
  log_softmax_rows(numerics(), logits);
  EXPECT_NEAR(logits.values[0], -std::log1p(std::exp(-1.0)), 1e-6);
}

/// The largest vocabulary of a case: neither shape of tree may need a stack as deep as that.
TEST_P(LogSoftmax, ServesTheLargestVocabulary) {
  const std::int64_t vocab = std::int64_t{1} << 20;
  for (const TreeShape shape : {TreeShape::halving, TreeShape::linear}) {
    Matrix logits(1, vocab);
    log_softmax_rows(numerics(shape), logits);
    EXPECT_EQ(logits.values.front(), -log_f32(static_cast<float>(vocab)));
  }
}

std::vector<float> sums_over_cuts(const SumOfExponentials& sum, const Matrix& logits,
                                  const std::vector<std::int64_t>& cuts) {
  const std::vector<float> maxima = row_maxima(logits);
  std::vector<std::vector<std::byte>> sent;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    Matrix part(logits.rows, cuts[r + 1] - cuts[r]);
    for (std::int64_t i = 0; i < part.rows; ++i)
      std::copy_n(logits.row(i) + cuts[r], part.width, part.row(i));
    sent.push_back(sum.partial(part, maxima, cuts[r], cuts[r + 1]));
  }
  std::vector<SumOfExponentials::Part> parts;
  for (std::size_t r = 0; r < sent.size(); ++r) parts.push_back({{cuts[r], cuts[r + 1]}, sent[r]});
  return sum.complete(logits.rows, parts);
}

TEST_P(LogSoftmax, TheSumOverACutVocabularyIsTheWholeOneButUnderNative) {
  const Matrix logits = random_logits(3, 61);
  for (const TreeShape shape : {TreeShape::halving, TreeShape::linear}) {
    const Numerics all = numerics(shape);
    const SumOfExponentials sum(all, 61, kVocabularyLeaf);
    const auto whole = sums_over_cuts(sum, logits, {0, 61});
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{0, 30, 61}, {0, 1, 2, 61}, {0, 0, 17, 17, 40, 61, 61}}) {
      const auto parts = sums_over_cuts(sum, logits, cuts);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (GetParam() != Arithmetic::native) {
          EXPECT_EQ(parts[i], whole[i]);
        }
        EXPECT_NEAR(parts[i], whole[i], whole[i] * 1e-6F);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, LogSoftmax,
                         testing::Values(Arithmetic::native, Arithmetic::tree, Arithmetic::exact),
                         [](const auto& arithmetic) { return std::string(to_string(arithmetic.param)); });

TEST(SumOfExponentials, UnderTreeIsTheTreeOverSingleEntries) {
  const Matrix logits = random_logits(1, 61);
  std::vector<float> weights;
  for (const float logit : logits.values) weights.push_back(exp_f32(logit - row_maxima(logits).front()));
  for (const TreeShape shape : {TreeShape::halving, TreeShape::linear}) {
    Numerics numerics{Arithmetic::tree, {}};
    numerics.contract.shape = shape;
    const SumOfExponentials sum(numerics, 61, kVocabularyLeaf);
    EXPECT_EQ(sums_over_cuts(sum, logits, {0, 61}).front(), tree_sum(shape, {0, 61}, weights));
  }
}

TEST(SumOfExponentials, UnderTreeIsNotCutInsideALeaf) {
  const Numerics numerics{Arithmetic::tree, {}};
  const SumOfExponentials sum(numerics, 10, 4);
  const std::vector<float> maxima = {0.0F};
  EXPECT_THROW(sum.partial(Matrix(1, 5), maxima, 0, 5), UnsupportedLayout);
  EXPECT_EQ(sums_over_cuts(sum, Matrix(1, 10), {0, 8, 10}).front(), 10.0F);
}

}  // namespace
}  // namespace shardcheck
