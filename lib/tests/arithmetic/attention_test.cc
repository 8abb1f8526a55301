#include "shardcheck/arithmetic/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "attention_problem.h"
#include "scalar_oracle.h"

namespace shardcheck {
namespace {

using oracle::AttentionProblem;
using oracle::bits;
using oracle::on_every_target;
using Floats = std::vector<float>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

TEST(Attention, EqualsTheScalarDefinition) {
  on_every_target([] {
    Stream stream(4, "attention");
    for (int draw = 0; draw < 25; ++draw) {
      const AttentionProblem problem = AttentionProblem::draw(stream);
      ASSERT_EQ(bits(problem.run()), bits(problem.expected()))
          << problem.shape.rows << " rows, head_dim " << problem.shape.head_dim << ", block "
          << problem.shape.key_block;
    }
  });
}

TEST(Attention, WithSlopesSinksAndShiftedBlocksEqualsTheScalarDefinition) {
  on_every_target([] {
    Stream stream(12, "attention");
    for (int draw = 0; draw < 25; ++draw) {
      AttentionProblem problem = AttentionProblem::draw(stream);
      problem.add_biases(stream);
      problem.shape.block_offset = stream.integer(0, 20);
      ASSERT_EQ(bits(problem.run()), bits(problem.expected()))
          << problem.shape.rows << " rows, block " << problem.shape.key_block << " offset "
          << problem.shape.block_offset;
    }
  });
}

// Independent of the order of operations: what the bits above stand for.
TEST(Attention, WithSlopesAndSinksIsCloseToTheFormulaInDoublePrecision) {
  Stream stream(13, "attention");
  for (int draw = 0; draw < 20; ++draw) {
    AttentionProblem problem = AttentionProblem::draw(stream);
    problem.add_biases(stream);
    const AttentionShape& shape = problem.shape;
    const Floats out = problem.run();
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t c = 0; c < shape.head_dim; ++c) {
          const float actual = out[at(i * shape.out_stride + h * shape.head_dim + c)];
          ASSERT_NEAR(actual, problem.formula(i, h, c), 1e-4) << i << ' ' << h << ' ' << c;
        }
      }
    }
  }
}

TEST(Attention, InChunksAndOneTokenAtATimeHasTheBitsOfPrefill) {
  Stream stream(14, "attention");
  for (int draw = 0; draw < 60; ++draw) {
    AttentionProblem problem = AttentionProblem::draw(stream);
    if (stream.chance(1, 2)) problem.add_biases(stream);
    const Floats whole = problem.run();
    Floats chunks, tokens;
    for (std::int64_t first = 0; first < problem.shape.rows;) {
      const std::int64_t rows = stream.integer(1, problem.shape.rows - first);
      const Floats chunk = problem.run_chunk(first, rows);
      chunks.insert(chunks.end(), chunk.begin(), chunk.end());
      first += rows;
    }
    for (std::int64_t i = 0; i < problem.shape.rows; ++i) {
      const Floats token = problem.run_chunk(i, 1);
      tokens.insert(tokens.end(), token.begin(), token.end());
    }
    ASSERT_EQ(bits(chunks), bits(whole)) << "block " << problem.shape.key_block;
    ASSERT_EQ(bits(tokens), bits(whole)) << "block " << problem.shape.key_block;
  }
}

// The bug that block_offset is there to commit: blocks counted from where the chunk begins.
TEST(Attention, WithBlocksCountedFromTheChunkHasOtherBits) {
  Stream stream(15, "attention");
  AttentionProblem problem(stream, 40, 2, 1, 16);
  problem.shape.key_block = 8;
  const Floats whole = problem.run();
  problem.shape.block_offset = 24;  // a whole number of blocks
  EXPECT_EQ(bits(problem.run()), bits(whole));
  problem.shape.block_offset = 21;
  EXPECT_NE(bits(problem.run()), bits(whole));
}

TEST(Attention, WithASinkOfMinusInfinityIsThatWithout) {
  Stream stream(16, "attention");
  AttentionProblem problem(stream, 20, 2, 1, 8);
  const Floats without = problem.run();
  const Floats sinks(2, -INFINITY);
  problem.shape.sinks = sinks.data();
  EXPECT_EQ(bits(problem.run()), bits(without));
}

TEST(Attention, EqualsTheScalarDefinitionForWideHeadsAndManyPositions) {
  Stream stream(5, "attention");
  for (const std::int64_t head_dim : {64, 128, 129}) {
    AttentionProblem problem(stream, 150, 2, 1, head_dim);
    problem.shape.key_block = 64;
    ASSERT_EQ(bits(problem.run()), bits(problem.expected())) << head_dim;
  }
}

// What makes decoding with a cache equal to prefill, and chunks equal to the whole.
TEST(Attention, OfARowDoesNotDependOnLaterRows) {
  Stream stream(6, "attention");
  AttentionProblem problem(stream, 33, 4, 2, 24);
  problem.shape.key_block = 8;
  const Floats whole = problem.run();
  for (std::int64_t rows = 1; rows <= 33; ++rows) {
    problem.shape.rows = problem.shape.keys = rows;
    EXPECT_EQ(bits(problem.run()), bits(std::span(whole).first(at(rows * problem.shape.out_stride)))) << rows;
  }
}

TEST(Attention, IgnoresEvenNanInLaterRows) {
  Stream stream(7, "attention");
  AttentionProblem problem(stream, 12, 2, 1, 8);
  const Floats clean = problem.run();
  const std::int64_t last = 11;
  problem.k[at(last * problem.shape.k_stride)] = NAN;
  problem.v[at(last * problem.shape.v_stride)] = NAN;
  const Floats dirty = problem.run();
  const std::size_t before = at(last * problem.shape.out_stride);
  EXPECT_EQ(bits(std::span(dirty).first(before)), bits(std::span(clean).first(before)));
  EXPECT_TRUE(std::isnan(dirty[before]));
}

TEST(Attention, OfPermutedHeadsIsPermuted) {
  Stream stream(8, "attention");
  const AttentionProblem problem(stream, 10, 6, 3, 16);
  const std::vector<std::int64_t> order = {4, 0, 5, 2, 1, 3};
  AttentionProblem permuted = problem;
  Floats expected(problem.run().size());
  const Floats out = problem.run();
  const std::int64_t d = problem.shape.head_dim;
  for (std::int64_t h = 0; h < 6; ++h) {
    permuted.kv_of_head[at(h)] = problem.kv_of_head[at(order[at(h)])];
    for (std::int64_t i = 0; i < 10; ++i) {
      const std::int64_t from = i * problem.shape.q_stride + order[at(h)] * d;
      std::copy_n(&problem.q[at(from)], d, &permuted.q[at(i * problem.shape.q_stride + h * d)]);
      const std::int64_t row = i * problem.shape.out_stride;
      std::copy_n(&out[at(row + order[at(h)] * d)], d, &expected[at(row + h * d)]);
    }
  }
  EXPECT_EQ(bits(permuted.run()), bits(expected));
}

TEST(Attention, OfAHeadAloneEqualsTheSameHeadInCompany) {
  Stream stream(9, "attention");
  const AttentionProblem problem(stream, 17, 6, 2, 20);
  const Floats out = problem.run();
  const std::int64_t d = problem.shape.head_dim;
  for (std::int64_t h = 0; h < 6; ++h) {
    AttentionShape shape = problem.shape;
    shape.heads = 1;
    shape.out_stride = d;
    Floats alone(at(17 * d)), expected;
    const std::vector<std::int64_t> kv = {problem.kv_of_head[at(h)]};
    attention(shape, problem.q.data() + h * d, problem.k.data(), problem.v.data(), kv, alone.data());
    for (std::int64_t i = 0; i < 17; ++i) {
      const auto row = std::span(out).subspan(at(i * problem.shape.out_stride + h * d), at(d));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(bits(alone), bits(expected)) << h;
  }
}

TEST(Attention, ThatIsNotCausalSeesLaterRows) {
  Stream stream(10, "attention");
  AttentionProblem problem(stream, 8, 1, 1, 4);
  const Floats causal = problem.run();
  problem.shape.causal = false;
  const Floats full = problem.run();
  EXPECT_NE(bits(std::span(causal).first(4)), bits(std::span(full).first(4)));
  EXPECT_EQ(bits(std::span(causal).last(4)), bits(std::span(full).last(4)));
}

TEST(Attention, RefusesHeadsWithoutAKvHead) {
  Stream stream(11, "attention");
  AttentionProblem problem(stream, 3, 2, 2, 4);
  problem.kv_of_head = {0, 2};
  EXPECT_THROW(problem.run(), std::invalid_argument);
  problem.kv_of_head = {0, -1};
  EXPECT_THROW(problem.run(), std::invalid_argument);
  problem.kv_of_head = {0};
  EXPECT_THROW(problem.run(), std::invalid_argument);
  problem.kv_of_head = {0, 1};
  problem.shape.key_block = -1;
  EXPECT_THROW(problem.run(), std::invalid_argument);
}

TEST(Attention, RefusesQueriesThatSeeKeysNotHeld) {
  Stream stream(17, "attention");
  const AttentionProblem good(stream, 6, 1, 1, 4);
  EXPECT_NO_THROW(good.run());
  const auto refuses = [&](auto change) {
    AttentionProblem problem = good;
    change(problem.shape);
    EXPECT_THROW(problem.run(), std::invalid_argument);
  };
  refuses([](AttentionShape& s) { s.keys = 5; });
  refuses([](AttentionShape& s) { s.first_query = 1; });
  refuses([](AttentionShape& s) { s.first_key = 1; });
  refuses([](AttentionShape& s) { s.first_query = -1; });
  refuses([](AttentionShape& s) { s.block_offset = -1; });
  refuses([](AttentionShape& s) {
    s.causal = false;
    s.keys = 0;
  });
}

TEST(AlibiSlopes, OfAPowerOfTwoAreItsPowers) {
  EXPECT_EQ(alibi_slopes(8),
            (Floats{0x1p-1F, 0x1p-2F, 0x1p-3F, 0x1p-4F, 0x1p-5F, 0x1p-6F, 0x1p-7F, 0x1p-8F}));
  EXPECT_EQ(alibi_slopes(1), Floats{0x1p-8F});
  EXPECT_EQ(alibi_slopes(2), (Floats{0x1p-4F, 0x1p-8F}));
  const Floats sixteen = alibi_slopes(16);
  EXPECT_EQ(sixteen[1], 0x1p-1F);
  EXPECT_EQ(sixteen[15], 0x1p-8F);
  EXPECT_EQ(sixteen[0], static_cast<float>(std::sqrt(0.5)));
}

// Twelve heads: those of eight, then the first, third, fifth and seventh of sixteen.
TEST(AlibiSlopes, OfOtherNumbersLieBetween) {
  const Floats twelve = alibi_slopes(12), eight = alibi_slopes(8);
  ASSERT_EQ(twelve.size(), 12U);
  EXPECT_EQ(Floats(twelve.begin(), twelve.begin() + 8), eight);
  const double published[] = {0.70710678118654757, 0.35355339059327379, 0.17677669529663689,
                              0.088388347648318447};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(twelve[8 + i], static_cast<float>(published[i]));
  EXPECT_TRUE(alibi_slopes(0).empty());
  EXPECT_THROW(alibi_slopes(-1), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
