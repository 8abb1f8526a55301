#include "shardcheck/arithmetic/gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>

#include "scalar_oracle.h"

namespace shardcheck {
namespace {

constexpr TreeShape kShapes[] = {TreeShape::halving, TreeShape::linear};

// x [m, k] with rows `ldx` apart and w [n, k].
struct Problem {
  Problem(Stream& stream, std::int64_t m_, std::int64_t n_, std::int64_t k_)
      : m(m_), n(n_), k(k_), ldx(k_ + stream.integer(0, 3)) {
    x = oracle::random_values(stream, m * ldx);
    w = oracle::random_values(stream, n * k);
  }

  static Problem draw(Stream& stream) {
    const std::int64_t m = stream.integer(1, 40), n = stream.integer(1, 150);
    return Problem(stream, m, n, stream.integer(1, 200));
  }

  PackedWeights packed() const { return PackedWeights(w.data(), n, k, k); }

  std::vector<float> run(const Reduction& reduction) const {
    std::vector<float> y(static_cast<std::size_t>(m * n));
    gemm(x.data(), ldx, m, packed(), reduction, y.data(), n);
    return y;
  }

  std::vector<float> expected(TreeShape shape, std::int64_t leaf) const {
    std::vector<float> y;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        y.push_back(oracle::dot(
            shape, k, leaf, [&](std::int64_t c) { return x[static_cast<std::size_t>(i * ldx + c)]; },
            [&](std::int64_t c) { return w[static_cast<std::size_t>(j * k + c)]; }));
      }
    }
    return y;
  }

  std::int64_t m, n, k, ldx;
  std::vector<float> x, w;
};

void expect_equals_oracle(const Problem& problem, TreeShape shape, std::int64_t leaf) {
  const Reduction reduction = Reduction::whole(shape, problem.k, leaf);
  ASSERT_EQ(oracle::bits(problem.run(reduction)), oracle::bits(problem.expected(shape, leaf)))
      << problem.m << 'x' << problem.n << 'x' << problem.k << " leaf " << leaf << ' ' << to_string(shape);
}

TEST(Gemm, EqualsTheScalarDefinitionBitForBit) {
  Stream stream(1, "gemm");
  for (int draw = 0; draw < 60; ++draw) {
    const Problem problem = Problem::draw(stream);
    expect_equals_oracle(problem, TreeShape::halving, stream.integer(1, problem.k));
    expect_equals_oracle(problem, TreeShape::linear, stream.integer(1, problem.k));
    expect_equals_oracle(problem, TreeShape::halving, 0);
  }
}

TEST(Gemm, EqualsTheScalarDefinitionForEveryHeightAndWidthOfATile) {
  Stream stream(2, "gemm");
  for (std::int64_t m = 1; m <= 26; ++m)
    expect_equals_oracle(Problem(stream, m, 64, 24), TreeShape::halving, 8);
  for (std::int64_t n = 1; n <= 140; ++n)
    expect_equals_oracle(Problem(stream, 2, n, 24), TreeShape::halving, 8);
}

TEST(Gemm, EqualsTheScalarDefinitionWhenKIsWalkedInSegments) {
  Stream stream(3, "gemm");
  for (const std::int64_t leaf : {0, 7, 100, 128, 1024, 1500, 2600, 5000}) {
    for (const TreeShape shape : kShapes) expect_equals_oracle(Problem(stream, 15, 70, 2600), shape, leaf);
  }
  expect_equals_oracle(Problem(stream, 1, 130, 2600), TreeShape::halving, 128);
}

TEST(Gemm, EqualsTheScalarDefinitionForManyRows) {
  Stream stream(4, "gemm");
  expect_equals_oracle(Problem(stream, 1000, 17, 20), TreeShape::halving, 5);
}

// The kernel copies so many rows of inputs that so many panels of outputs read, and takes panels in wider
// blocks then.
TEST(Gemm, EqualsTheScalarDefinitionForManyOutputsOnEverySimdTarget) {
  Stream stream(8, "gemm many outputs");
  for (const std::string& target : simd_targets()) {
    const oracle::ForcedTarget forced(target);
    for (const std::int64_t n : {240, 241, 305, 340, 577}) {
      expect_equals_oracle(Problem(stream, stream.integer(60, 90), n, 300), TreeShape::halving, 70);
    }
    expect_equals_oracle(Problem(stream, 67, 290, 600), TreeShape::linear, 128);
    expect_equals_oracle(Problem(stream, 67, 290, 600), TreeShape::halving, 0);
    expect_equals_oracle(Problem(stream, 400, 272, 9), TreeShape::halving, 4);
  }
}

TEST(Gemm, HasTheSameBitsOnEverySimdTarget) {
  Stream stream(5, "gemm");
  for (int draw = 0; draw < 12; ++draw) {
    const Problem problem = Problem::draw(stream);
    const std::int64_t leaf = stream.integer(0, problem.k);
    const Reduction reduction =
        Reduction::whole(stream.pick(std::vector{kShapes[0], kShapes[1]}), problem.k, leaf);
    const std::vector<float> best = problem.run(reduction);
    for (const std::string& target : simd_targets()) {
      const oracle::ForcedTarget forced(target);
      ASSERT_EQ(oracle::bits(problem.run(reduction)), oracle::bits(best)) << target;
    }
  }
}

TEST(Gemm, HasTheSameBitsHoweverRowsAreCut) {
  Stream stream(6, "gemm");
  for (int draw = 0; draw < 20; ++draw) {
    const Problem problem = Problem::draw(stream);
    const Reduction reduction = Reduction::whole(TreeShape::halving, problem.k, stream.integer(0, problem.k));
    const PackedWeights packed = problem.packed();
    std::vector<float> y(static_cast<std::size_t>(problem.m * problem.n));
    for (std::int64_t row = 0; row < problem.m;) {
      const std::int64_t count = stream.integer(1, problem.m - row);
      gemm(problem.x.data() + row * problem.ldx, problem.ldx, count, packed, reduction,
           y.data() + row * problem.n, problem.n);
      row += count;
    }
    ASSERT_EQ(oracle::bits(y), oracle::bits(problem.run(reduction)));
  }
}

TEST(Gemm, HasTheSameBitsHoweverOutputsAreCut) {
  Stream stream(7, "gemm");
  for (int draw = 0; draw < 20; ++draw) {
    const Problem problem = Problem::draw(stream);
    const Reduction reduction = Reduction::whole(TreeShape::halving, problem.k, stream.integer(0, problem.k));
    std::vector<float> y(static_cast<std::size_t>(problem.m * problem.n));
    for (std::int64_t column = 0; column < problem.n;) {
      const std::int64_t count = stream.integer(1, problem.n - column);
      const PackedWeights part(problem.w.data() + column * problem.k, count, problem.k, problem.k);
      gemm(problem.x.data(), problem.ldx, problem.m, part, reduction, y.data() + column, problem.n);
      column += count;
    }
    ASSERT_EQ(oracle::bits(y), oracle::bits(problem.run(reduction)));
  }
}

// Ranks own random runs of leaves, some of them none.
std::vector<std::int64_t> random_leaf_cuts(Stream& stream, std::int64_t leaves, int ranks) {
  std::vector<std::int64_t> cuts = {0, leaves};
  for (int r = 1; r < ranks; ++r) cuts.push_back(stream.integer(0, leaves));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Computes every rank's nodes from its own columns of x and w, ships them and completes the tree.
std::vector<float> run_on_ranks(const Problem& problem, TreeShape shape, std::int64_t leaf,
                                const std::vector<std::int64_t>& cuts) {
  const std::int64_t leaves = cuts.back(), size = problem.m * problem.n;
  std::vector<TreeNode> nodes;
  std::vector<std::vector<float>> shipped;
  std::vector<const float*> values;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const std::int64_t begin = std::min(problem.k, cuts[r] * leaf),
                       end = std::min(problem.k, cuts[r + 1] * leaf);
    const Reduction part = Reduction::part(shape, problem.k, leaf, begin, end);
    const PackedWeights w(problem.w.data() + begin, problem.n, end - begin, problem.k);
    const std::vector<TreeNode> local = nodes_of(part, end - begin);
    shipped.emplace_back(local.size() * static_cast<std::size_t>(size));
    gemm_nodes(problem.x.data() + begin, problem.ldx, problem.m, w, part, shipped.back().data());
    for (std::size_t q = 0; q < local.size(); ++q) {
      nodes.push_back(local[q]);
      values.push_back(shipped.back().data() + static_cast<std::int64_t>(q) * size);
    }
  }
  std::vector<float> y(static_cast<std::size_t>(size));
  complete_tree(shape, leaves, nodes, values, size, y.data());
  return y;
}

TEST(GemmNodes, OfAnyRanksCompleteToTheRootOfOneRank) {
  Stream stream(8, "gemm");
  for (int draw = 0; draw < 40; ++draw) {
    const Problem problem = Problem::draw(stream);
    const std::int64_t leaf = stream.integer(1, 1 + problem.k / 4);
    const std::int64_t leaves = (problem.k + leaf - 1) / leaf;
    for (const TreeShape shape : kShapes) {
      const std::vector<float> whole = problem.run(Reduction::whole(shape, problem.k, leaf));
      for (const int ranks : {1, 2, 3, 5, 6, 7}) {
        const auto cuts = random_leaf_cuts(stream, leaves, ranks);
        ASSERT_EQ(oracle::bits(run_on_ranks(problem, shape, leaf, cuts)), oracle::bits(whole))
            << ranks << " ranks, " << leaves << " leaves";
      }
    }
  }
}

TEST(GemmNodes, OfAChainAreTheOnePartialSum) {
  Stream stream(9, "gemm");
  const Problem problem(stream, 5, 33, 77);
  std::vector<float> node(static_cast<std::size_t>(problem.m * problem.n));
  gemm_nodes(problem.x.data(), problem.ldx, problem.m, problem.packed(), Reduction::chain(), node.data());
  EXPECT_EQ(nodes_of(Reduction::chain(), 77).size(), 1U);
  EXPECT_EQ(oracle::bits(node), oracle::bits(problem.run(Reduction::chain())));
}

TEST(Gemm, OfNoRowsOrNoOutputsWritesNothing) {
  const std::vector<float> x(8, 1.0F), w(8, 1.0F);
  float y = 5.0F;
  gemm(x.data(), 4, 0, PackedWeights(w.data(), 2, 4, 4), Reduction::chain(), &y, 2);
  gemm(x.data(), 4, 2, PackedWeights(w.data(), 0, 4, 4), Reduction::chain(), &y, 0);
  EXPECT_EQ(y, 5.0F);
}

TEST(Gemm, OfNoColumnsWritesPositiveZero) {
  const float x = 1.0F, w = 1.0F;
  for (const Reduction& reduction : {Reduction::chain(), Reduction::whole(TreeShape::halving, 0, 4)}) {
    std::vector<float> y(6, -3.0F);
    gemm(&x, 0, 2, PackedWeights(&w, 2, 0, 0), reduction, y.data(), 3);
    EXPECT_EQ(oracle::bits(y), oracle::bits(std::vector{0.0F, 0.0F, -3.0F, 0.0F, 0.0F, -3.0F}));
  }
}

TEST(Gemm, LetsNanAndInfinityReachTheirRowAndColumnOnly) {
  Stream stream(10, "gemm");
  Problem problem(stream, 9, 21, 40);
  problem.x[static_cast<std::size_t>(4 * problem.ldx + 11)] = std::numeric_limits<float>::quiet_NaN();
  problem.w[static_cast<std::size_t>(20 * problem.k + 7)] = std::numeric_limits<float>::infinity();
  const std::vector<float> y = problem.run(Reduction::whole(TreeShape::halving, 40, 8));
  for (std::int64_t i = 0; i < problem.m; ++i) {
    for (std::int64_t j = 0; j < problem.n; ++j) {
      const float value = y[static_cast<std::size_t>(i * problem.n + j)];
      if (i == 4) {
        EXPECT_TRUE(std::isnan(value));
      } else if (j == 20) {
        EXPECT_TRUE(std::isinf(value));
      } else {
        EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

// Inputs, and the bits of a product of any packed weights with them. gemm_nodes writes behind gemm's output.
struct Inputs {
  Inputs(Stream& stream, std::int64_t m_, std::int64_t k) : m(m_), ldx(k + stream.integer(0, 3)) {
    x = oracle::random_values(stream, m * ldx);
  }

  std::vector<std::uint32_t> products(const PackedWeights& w, std::int64_t leaf,
                                      std::int64_t first_column = 0) const {
    const Reduction whole = Reduction::whole(TreeShape::halving, w.k(), leaf);
    std::vector<float> y(static_cast<std::size_t>(m * w.n()), -7.0F);
    gemm(x.data() + first_column, ldx, m, w, whole, y.data(), w.n());
    if (leaf > 0) {
      // The same columns as the last of a longer sum, where a rank computes several nodes.
      const std::int64_t missing = 3 * leaf;
      const Reduction part =
          Reduction::part(TreeShape::halving, missing + w.k(), leaf, missing, missing + w.k());
      const auto size = static_cast<std::ptrdiff_t>(nodes_of(part, w.k()).size()) * m * w.n();
      y.resize(y.size() + static_cast<std::size_t>(size), -7.0F);
      gemm_nodes(x.data() + first_column, ldx, m, w, part, y.data() + m * w.n());
    }
    return oracle::bits(y);
  }

  std::int64_t m, ldx;
  std::vector<float> x;
};

Tensor random_weights(Stream& stream, DType dtype, std::int64_t n, std::int64_t k) {
  return Tensor::from({n, k}, oracle::random_values(stream, n * k)).to(dtype);
}

// Rows [first, first + count) and columns [begin, end) of a matrix, as a tensor of its own.
Tensor copy_of_part(const Tensor& w, std::int64_t first, std::int64_t count, std::int64_t begin,
                    std::int64_t end) {
  const Tensor wide = w.to(DType::f32);
  std::vector<float> values;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto at = wide.f32().begin() + row * w.dim(1);
    values.insert(values.end(), at + begin, at + end);
  }
  return Tensor::from({count, end - begin}, values).to(w.dtype());
}

TEST(PackedWeights, GiveTheBitsOfWidenedWeightsOnEverySimdTarget) {
  Stream stream(11, "gemm");
  for (int draw = 0; draw < 30; ++draw) {
    const std::int64_t m = stream.integer(1, 80), n = stream.integer(1, 350), k = stream.integer(1, 600);
    const std::int64_t leaf = stream.integer(0, k);
    const Inputs inputs(stream, m, k);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Tensor narrow = random_weights(stream, dtype, n, k);
      const auto expected = inputs.products(PackedWeights(narrow.to(DType::f32)), leaf);
      for (const std::string& target : simd_targets()) {
        const oracle::ForcedTarget forced(target);
        ASSERT_EQ(inputs.products(PackedWeights(narrow), leaf), expected)
            << target << ' ' << short_name(dtype) << ' ' << m << 'x' << n << 'x' << k << " leaf " << leaf;
      }
    }
  }
}

// One column, inputs 1 and -2: products show each weight's value, at a scale where none is lost.
TEST(PackedWeights, WidenEverySixteenBitPatternExactlyOnEverySimdTarget) {
  constexpr std::int64_t kPatterns = 1 << 16;
  const std::vector<float> x = {1.0F, -2.0F, 0.5F};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor patterns = Tensor::uninitialized(dtype, {kPatterns, 1});
    for (std::int64_t i = 0; i < kPatterns; ++i)
      patterns.mutable_as<std::uint16_t>()[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
    const Tensor wide = patterns.to(DType::f32);
    for (const std::string& target : simd_targets()) {
      const oracle::ForcedTarget forced(target);
      std::vector<float> y(3 * kPatterns);
      gemm(x.data(), 1, 3, PackedWeights(patterns), Reduction::chain(), y.data(), kPatterns);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float weight = wide.f32()[i % kPatterns], input = x[i / kPatterns];
        if (std::isnan(weight)) {
          ASSERT_TRUE(std::isnan(y[i])) << target << ' ' << short_name(dtype) << " pattern " << i % kPatterns;
        } else {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]),
                    std::bit_cast<std::uint32_t>(std::fma(input, weight, 0.0F)))
              << target << ' ' << short_name(dtype) << " pattern " << i % kPatterns;
        }
      }
    }
  }
}

TEST(PackedWeights, KeepTheirDTypeAndTakeItsBytes) {
  Stream stream(13, "gemm");
  for (const DType dtype : kDTypes) {
    const PackedWeights packed(random_weights(stream, dtype, 33, 10));
    const std::int64_t element = dtype == DType::f32 ? 4 : 2;
    EXPECT_EQ(packed.dtype(), dtype);
    EXPECT_EQ(packed.n(), 33);
    EXPECT_EQ(packed.k(), 10);
    EXPECT_EQ(packed.bytes(), 48 * 10 * element);
    EXPECT_EQ(packed.rows(16, 16).bytes(), 16 * 10 * element);
    EXPECT_EQ(packed.rows(15, 2).bytes(), 32 * 10 * element);
    EXPECT_EQ(packed.rows(5, 0).bytes(), 0);
    EXPECT_EQ(packed.columns(3, 7).bytes(), 48 * 4 * element);
    EXPECT_EQ(packed.columns(3, 7).dtype(), dtype);
  }
  EXPECT_EQ(PackedWeights().bytes(), 0);
}

TEST(PackedWeights, ViewsShareThePanelsAndOutliveTheirSource) {
  Stream stream(14, "gemm");
  const Inputs inputs(stream, 4, 20);
  const Tensor w = random_weights(stream, DType::bf16, 70, 20);
  auto source = std::make_unique<PackedWeights>(w);
  const PackedWeights view = source->rows(40, 25).columns(4, 20);
  EXPECT_EQ(view.panel(0), source->panel(2, 4));
  EXPECT_EQ(view.panel_stride(), source->panel_stride());
  source.reset();
  EXPECT_EQ(inputs.products(view, 8, 4),
            inputs.products(PackedWeights(copy_of_part(w, 40, 25, 4, 20)), 8, 4));
}

TEST(PackedWeights, ViewsGiveTheBitsOfCopies) {
  Stream stream(15, "gemm");
  for (int draw = 0; draw < 120; ++draw) {
    const DType dtype = kDTypes[draw % 3];
    const std::int64_t m = stream.integer(1, 30), n = stream.integer(1, 200), k = stream.integer(1, 700);
    const Tensor w = random_weights(stream, dtype, n, k);
    const std::int64_t first = stream.integer(0, n), count = stream.integer(0, n - first);
    const std::int64_t begin = stream.integer(0, k), end = stream.integer(begin, k);
    const std::int64_t leaf = stream.integer(0, std::max<std::int64_t>(1, end - begin));
    const Inputs inputs(stream, m, k);
    const auto expected =
        inputs.products(PackedWeights(copy_of_part(w, first, count, begin, end)), leaf, begin);
    const PackedWeights packed(w);
    ASSERT_EQ(inputs.products(packed.rows(first, count).columns(begin, end), leaf, begin), expected)
        << short_name(dtype) << ' ' << m << 'x' << n << 'x' << k << " rows " << first << '+' << count
        << " columns " << begin << ".." << end << " leaf " << leaf;
    ASSERT_EQ(inputs.products(packed.columns(begin, end).rows(first, count), leaf, begin), expected);
  }
}

TEST(PackedWeights, AViewOfAViewIsTheViewOfBothRanges) {
  Stream stream(16, "gemm");
  for (int draw = 0; draw < 30; ++draw) {
    const Tensor w = random_weights(stream, kDTypes[draw % 3], 90, 60);
    const PackedWeights packed(w);
    const std::int64_t outer = stream.integer(0, 40), inner = stream.integer(0, 20),
                       count = stream.integer(0, 30), begin = stream.integer(0, 20),
                       end = stream.integer(begin, 40);
    const Inputs inputs(stream, 5, 60);
    ASSERT_EQ(
        inputs.products(packed.rows(outer, 50).columns(10, 60).rows(inner, count).columns(begin, end), 8),
        inputs.products(packed.rows(outer + inner, count).columns(10 + begin, 10 + end), 8));
  }
}

TEST(PackedWeights, ViewsRefuseRangesOutside) {
  const PackedWeights packed(Tensor::zeros(DType::f32, {20, 10}));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [first, count] : {std::pair{-1, 2}, {0, 21}, {21, 0}, {20, 1}, {3, -1}}) {
    EXPECT_THROW(static_cast<void>(packed.rows(first, count)), std::out_of_range) << first << '+' << count;
  }
  EXPECT_THROW(static_cast<void>(packed.rows(3, kMost)), std::out_of_range);
  for (const auto& [begin, end] : {std::pair{-1, 2}, {0, 11}, {11, 11}, {4, 3}}) {
    EXPECT_THROW(static_cast<void>(packed.columns(begin, end)), std::out_of_range) << begin << ".." << end;
  }
  // A view is bounded by itself, not by what is stored.
  EXPECT_THROW(static_cast<void>(packed.rows(5, 5).rows(0, 6)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(packed.columns(5, 7).columns(0, 3)), std::out_of_range);
  EXPECT_NO_THROW(static_cast<void>(packed.rows(20, 0).columns(10, 10)));
}

TEST(PackedWeights, RefuseOtherTensors) {
  EXPECT_THROW(PackedWeights(Tensor::zeros(DType::f32, {4})), std::invalid_argument);
  EXPECT_THROW(PackedWeights(Tensor::zeros(DType::f32, {2, 2, 2})), std::invalid_argument);
  EXPECT_THROW(PackedWeights(Tensor::zeros(DType::i64, {2, 2})), std::invalid_argument);
}

std::string refusal_of_part(std::int64_t k, std::int64_t leaf, std::int64_t begin, std::int64_t end) {
  try {
    Reduction::part(TreeShape::halving, k, leaf, begin, end);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Reduction, PartNamesTheBoundaryAndTheLargestLeafThatWouldDo) {
  const std::string message = refusal_of_part(720, 64, 144, 240);
  EXPECT_NE(message.find("boundary 144"), std::string::npos) << message;
  EXPECT_NE(message.find("leaf=64"), std::string::npos) << message;
  EXPECT_NE(message.find("largest leaf that would do is 48"), std::string::npos) << message;
  EXPECT_NE(refusal_of_part(720, 144, 144, 200).find("boundary 200"), std::string::npos);
  EXPECT_NE(refusal_of_part(720, 0, 0, 360).find("boundary 360"), std::string::npos);
}

TEST(Reduction, PartMayEndShortOnlyWhereTheSumEnds) {
  EXPECT_EQ(refusal_of_part(100, 30, 60, 100), "accepted");
  EXPECT_EQ(refusal_of_part(100, 30, 100, 100), "accepted");
  EXPECT_NE(refusal_of_part(100, 30, 0, 100 - 1), "accepted");
  const Reduction last = Reduction::part(TreeShape::halving, 100, 30, 60, 100);
  EXPECT_EQ(last.leaves, 4);
  EXPECT_EQ(last.first, 2);
}

TEST(Reduction, PartRefusesARangeOutsideTheSum) {
  EXPECT_NE(refusal_of_part(100, 10, -10, 20), "accepted");
  EXPECT_NE(refusal_of_part(100, 10, 30, 20), "accepted");
  EXPECT_NE(refusal_of_part(100, 10, 50, 110), "accepted");
  EXPECT_NE(refusal_of_part(100, -1, 0, 100), "accepted");
}

TEST(Gemm, RefusesAReductionThatDoesNotCoverItsTree) {
  const std::vector<float> x(64, 1.0F), w(64, 1.0F);
  const PackedWeights packed(w.data(), 1, 32, 32);
  float y = 0.0F;
  const auto run = [&](const Reduction& reduction) { gemm(x.data(), 32, 1, packed, reduction, &y, 1); };
  EXPECT_THROW(run(Reduction::part(TreeShape::halving, 64, 8, 0, 32)), std::invalid_argument);
  EXPECT_THROW(run({.leaf = 8, .leaves = 3}), std::invalid_argument);
  EXPECT_THROW(run({.leaf = 8, .leaves = 4, .first = 1}), std::invalid_argument);
  EXPECT_THROW(run({.leaf = -8, .leaves = 4}), std::invalid_argument);
  EXPECT_THROW(nodes_of({.leaf = 7, .leaves = 9}, 32), std::invalid_argument);
  EXPECT_NO_THROW(run(Reduction::whole(TreeShape::halving, 32, 8)));
}

// Sets the threads of the calling thread for the lifetime of the object.
class Threads {
 public:
  explicit Threads(int count) { set_gemm_threads(count); }
  ~Threads() { set_gemm_threads(1); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

TEST(GemmThreads, DoNotChangeBits) {
  Stream stream(17, "gemm");
  // Cut over panels, over rows, and narrow ends of both; all large enough to be shared.
  const std::int64_t shapes[][3] = {
      {65, 333, 257}, {1, 2111, 700}, {701, 19, 130}, {301, 70, 300}, {2, 1400, 600}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType dtype : kDTypes) {
      const Inputs inputs(stream, m, k);
      const PackedWeights packed(random_weights(stream, dtype, n + 20, k));
      const PackedWeights view = packed.rows(stream.integer(0, 20), n);
      const std::int64_t leaf = stream.integer(0, 100);
      const auto expected = inputs.products(view, leaf);
      for (const int count : {1, 2, 3, 4, 7}) {
        const Threads threads(count);
        ASSERT_EQ(inputs.products(view, leaf), expected)
            << count << " threads, " << m << 'x' << n << 'x' << k << ' ' << short_name(dtype);
      }
    }
  }
}

TEST(GemmThreads, CutRaggedProductsAnywhere) {
  Stream stream(19, "gemm");
  share_every_gemm(true);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t m = stream.integer(1, 120), n = stream.integer(1, 300), k = stream.integer(1, 40);
    const Inputs inputs(stream, m, k);
    const PackedWeights packed(random_weights(stream, DType::f32, n + 20, k));
    const PackedWeights view = packed.rows(stream.integer(0, 20), n);
    const auto expected = inputs.products(view, 8);
    for (int count = 2; count <= 8; ++count) {
      const Threads threads(count);
      EXPECT_EQ(inputs.products(view, 8), expected) << count << " threads, " << m << 'x' << n << 'x' << k;
    }
  }
  share_every_gemm(false);
}

TEST(GemmThreads, FollowAForcedSimdTarget) {
  Stream stream(18, "gemm");
  const Problem problem(stream, 33, 300, 200);
  const auto expected = oracle::bits(problem.run(Reduction::chain()));
  const Threads threads(3);
  for (const std::string& target : simd_targets()) {
    const oracle::ForcedTarget forced(target);
    EXPECT_EQ(oracle::bits(problem.run(Reduction::chain())), expected) << target;
  }
}

TEST(GemmThreads, BelongToTheCallingThread) {
  Stream stream(19, "gemm");
  const Problem problem(stream, 40, 300, 150);
  const auto expected = oracle::bits(problem.run(Reduction::chain()));
  const Threads threads(2);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      if (gemm_threads() != 1) ++wrong;
      set_gemm_threads(caller + 2);
      for (int round = 0; round < 20; ++round) {
        if (oracle::bits(problem.run(Reduction::chain())) != expected) ++wrong;
      }
      if (gemm_threads() != caller + 2) ++wrong;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(gemm_threads(), 2);
}

TEST(GemmThreads, RefuseACountOutOfRange) {
  for (const int count : {0, -1, kMaxGemmThreads + 1}) {
    EXPECT_THROW(set_gemm_threads(count), std::invalid_argument) << count;
  }
  EXPECT_EQ(gemm_threads(), 1);
}

TEST(SimdTargets, CanBeForcedByNameAndUnknownOnesAreRefused) {
  const std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& target : targets) {
    const oracle::ForcedTarget forced(target);
    EXPECT_EQ(simd_targets(), targets) << "forcing one hides no other";
  }
  try {
    force_simd_target("AVX9000");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(targets.front()), std::string::npos) << error.what();
  }
}

TEST(GemmSeconds, CountTheCallsSinceTheLastQuestion) {
  Stream stream(12, "gemm");
  const Problem problem(stream, 40, 100, 200);
  take_gemm_seconds();
  problem.run(Reduction::chain());
  EXPECT_GT(take_gemm_seconds(), 0.0);
  EXPECT_EQ(take_gemm_seconds(), 0.0);
  std::thread([&problem] {
    problem.run(Reduction::chain());
    EXPECT_EQ(take_gemm_seconds(), 0.0) << "the first question of a thread starts its count";
    problem.run(Reduction::chain());
    EXPECT_GT(take_gemm_seconds(), 0.0);
  }).join();
}

}  // namespace
}  // namespace shardcheck
