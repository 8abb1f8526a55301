#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "attention_problem.h"
#include "scalar_oracle.h"

namespace shardcheck {
namespace {

using oracle::AttentionProblem;
using oracle::bits;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

enum class Maxima { of_rank, of_all, of_all_and_sink };

/// A problem whose keys are cut over ranks; queries [first, first + rows).
struct Sharded {
  Sharded(const AttentionProblem& problem_, std::int64_t first_, std::int64_t rows)
      : problem(problem_), first(first_), shape(problem.chunk_shape(first_, rows)) {
    shape.all_keys = shape.keys;
  }

  /// cuts[r] .. cuts[r + 1] are the keys of rank r.
  Floats attend(const std::vector<std::int64_t>& cuts, Maxima told) {
    compute(cuts, told);
    return complete();
  }

  void compute(const std::vector<std::int64_t>& cuts, Maxima told) {
    const std::size_t ranks = cuts.size() - 1;
    maxima.clear();
    nodes.clear();
    parts.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      maxima.push_back(attention_maxima(part_shape(cuts, r), q(), k(cuts[r]), problem.kv_of_head));
    }
    if (told != Maxima::of_rank) share_maxima(told);
    for (std::size_t r = 0; r < ranks; ++r) {
      nodes.push_back(
          attention_nodes(part_shape(cuts, r), q(), k(cuts[r]), v(cuts[r]), problem.kv_of_head, maxima[r]));
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      parts.push_back({cuts[r], cuts[r + 1] - cuts[r], maxima[r], nodes[r]});
    }
  }

  Floats complete() const {
    Floats out(at(shape.rows * shape.out_stride));
    complete_attention(shape, parts, out.data());
    return out;
  }

  Floats whole() const { return problem.run_chunk(first, shape.rows); }

  AttentionShape part_shape(const std::vector<std::int64_t>& cuts, std::size_t r) const {
    AttentionShape part = shape;
    part.first_key = cuts[r];
    part.keys = cuts[r + 1] - cuts[r];
    return part;
  }

  const float* q() const { return problem.q.data() + first * shape.q_stride; }
  const float* k(std::int64_t key) const { return problem.k.data() + key * shape.k_stride; }
  const float* v(std::int64_t key) const { return problem.v.data() + key * shape.v_stride; }

  void share_maxima(Maxima told) {
    Floats all = maxima[0];
    for (std::size_t n = 0; n < all.size(); ++n) {
      for (const Floats& own : maxima) all[n] = std::max(all[n], own[n]);
      const bool sink = told == Maxima::of_all_and_sink && shape.sinks != nullptr;
      if (sink) all[n] = std::max(all[n], shape.sinks[n / at(shape.rows)]);
    }
    for (Floats& own : maxima) own = all;
  }

  const AttentionProblem& problem;
  std::int64_t first;
  AttentionShape shape;
  std::vector<Floats> maxima, nodes;
  std::vector<AttentionPart> parts;
};

/// Ascending cuts of `keys` positions for `ranks` ranks, at multiples of `block`; some ranks get none.
std::vector<std::int64_t> random_cuts(Stream& stream, std::int64_t keys, std::int64_t ranks,
                                      std::int64_t block) {
  std::vector<std::int64_t> cuts = {0, keys};
  for (std::int64_t r = 1; r < ranks; ++r) {
    cuts.push_back(std::min(keys, stream.integer(0, (keys + block - 1) / block) * block));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

Sharded random_chunk(Stream& stream, const AttentionProblem& problem) {
  const std::int64_t first = stream.integer(0, problem.shape.rows - 1);
  return Sharded(problem, first, stream.integer(1, problem.shape.rows - first));
}

TEST(AttentionParts, ToldTheMaximumHaveTheBitsOfAttention) {
  oracle::on_every_target([] {
    Stream stream(1, "attention_parts");
    for (int draw = 0; draw < 60; ++draw) {
      AttentionProblem problem = AttentionProblem::draw(stream);
      problem.shape.key_block = stream.integer(1, 9);
      if (stream.chance(1, 2)) problem.add_biases(stream);
      Sharded sharded = random_chunk(stream, problem);
      const std::int64_t ranks = stream.integer(1, 5);
      const auto cuts = random_cuts(stream, sharded.shape.keys, ranks, problem.shape.key_block);
      ASSERT_EQ(bits(sharded.attend(cuts, Maxima::of_all_and_sink)), bits(sharded.whole()))
          << ranks << " ranks, " << sharded.shape.keys << " keys, block " << problem.shape.key_block;
    }
  });
}

TEST(AttentionParts, WithoutBlocksOnOneRankHaveTheBitsOfAttention) {
  Stream stream(2, "attention_parts");
  for (int draw = 0; draw < 20; ++draw) {
    AttentionProblem problem = AttentionProblem::draw(stream);
    problem.shape.key_block = 0;
    if (stream.chance(1, 2)) problem.add_biases(stream);
    Sharded sharded = random_chunk(stream, problem);
    const std::int64_t keys = sharded.shape.keys;
    // The second holds none.
    ASSERT_EQ(bits(sharded.attend({0, keys, keys}, Maxima::of_all_and_sink)), bits(sharded.whole()));
  }
}

// Ring attention: every rank weighs relative to its own maximum.
TEST(AttentionParts, WithoutBlocksAreCloseToAttentionAndOftenDifferInBits) {
  Stream stream(3, "attention_parts");
  int different = 0;
  constexpr int kDraws = 60;
  for (int draw = 0; draw < kDraws; ++draw) {
    AttentionProblem problem = AttentionProblem::draw(stream);
    problem.shape.key_block = 0;
    if (stream.chance(1, 2)) problem.add_biases(stream);
    // Averages of positive values: no cancellation, so that a relative bound holds.
    for (float& value : problem.v) value = std::fabs(value);
    Sharded sharded = random_chunk(stream, problem);
    const auto cuts = random_cuts(stream, sharded.shape.keys, stream.integer(2, 5), 1);
    const Floats ring = sharded.attend(cuts, Maxima::of_rank), whole = sharded.whole();
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(ring[i], whole[i], 1e-5F * whole[i] + 1e-30F);
    if (bits(ring) != bits(whole)) ++different;
  }
  EXPECT_GT(different, kDraws / 3);
}

TEST(AttentionParts, ToldAnyMaximumAreCloseToAttention) {
  Stream stream(4, "attention_parts");
  for (int draw = 0; draw < 60; ++draw) {
    AttentionProblem problem = AttentionProblem::draw(stream);
    problem.shape.key_block = stream.integer(1, 9);
    problem.add_biases(stream);
    for (float& value : problem.v) value = std::fabs(value);
    Sharded sharded = random_chunk(stream, problem);
    const auto cuts = random_cuts(stream, sharded.shape.keys, stream.integer(1, 5), problem.shape.key_block);
    const Floats whole = sharded.whole();
    for (const Maxima told : {Maxima::of_rank, Maxima::of_all}) {
      const Floats out = sharded.attend(cuts, told);
      for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(out[i], whole[i], 1e-5F * whole[i] + 1e-30F);
    }
  }
}

TEST(AttentionParts, WithoutAKeySeenAddNothing) {
  Stream stream(5, "attention_parts");
  AttentionProblem problem(stream, 12, 2, 1, 8);
  problem.shape.key_block = 4;
  Sharded sharded(problem, 0, 12);
  const Floats out = sharded.attend({0, 4, 8, 12}, Maxima::of_rank);
  for (std::size_t n = 0; n < sharded.maxima[2].size(); ++n) {
    EXPECT_EQ(sharded.maxima[2][n] == -kInfinity, n % 12 < 8) << n;
  }
  for (const float value : out) EXPECT_TRUE(std::isfinite(value));
  // Four queries see a block of their own, each a node of 8 numerators and a denominator, in two heads.
  EXPECT_EQ(sharded.nodes[2].size(), 4U * 9U * 2U);
}

TEST(AttentionParts, WithScoresOfMinusInfinityWeighNothing) {
  Stream stream(6, "attention_parts");
  AttentionProblem problem(stream, 8, 1, 1, 2);
  problem.shape.key_block = 4;
  for (float& value : problem.q) value = std::fabs(value) + 0.5F;
  for (std::int64_t j = 0; j < 4; ++j) problem.k[at(j * problem.shape.k_stride)] = -kInfinity;
  Sharded sharded(problem, 4, 4);
  for (const Maxima told : {Maxima::of_rank, Maxima::of_all}) {
    const Floats out = sharded.attend({0, 4, 8}, told);
    EXPECT_EQ(bits(out), bits(sharded.whole()));
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(AttentionParts, ThatDoNotFitAreRefused) {
  Stream stream(7, "attention_parts");
  AttentionProblem problem(stream, 12, 2, 1, 8);
  problem.shape.key_block = 4;
  Sharded good(problem, 0, 12);
  good.compute({0, 4, 8, 12}, Maxima::of_all);
  EXPECT_NO_THROW(good.complete());
  const auto refuses = [&](auto change) {
    const auto parts = good.parts;
    change(good.parts);
    EXPECT_THROW(good.complete(), std::invalid_argument);
    good.parts = parts;
  };
  using Parts = std::vector<AttentionPart>;
  refuses([](Parts& parts) { parts.clear(); });
  refuses([](Parts& parts) { parts.pop_back(); });
  refuses([](Parts& parts) { parts.erase(parts.begin() + 1); });
  refuses([](Parts& parts) { std::swap(parts[0], parts[1]); });
  refuses([](Parts& parts) { parts[1].keys = -4; });
  refuses([](Parts& parts) { parts[2].keys = 0; });
  refuses([](Parts& parts) { parts[2].keys = 3; });
  refuses([](Parts& parts) { parts[1].maxima = parts[1].maxima.subspan(1); });
  refuses([](Parts& parts) { parts[1].nodes = parts[1].nodes.subspan(1); });
  refuses([](Parts& parts) { parts[1].nodes = {}; });
  refuses([](Parts& parts) {
    parts[0].keys = 3;
    parts[1].first_key = 3;
    parts[1].keys = 5;
  });
}

TEST(AttentionParts, CutInsideABlockAreRefused) {
  Stream stream(8, "attention_parts");
  AttentionProblem problem(stream, 12, 2, 1, 8);
  problem.shape.key_block = 4;
  Sharded sharded(problem, 0, 12);
  EXPECT_THROW(sharded.compute({0, 3, 12}, Maxima::of_all), std::invalid_argument);
  problem.shape.key_block = 3;
  EXPECT_NO_THROW(Sharded(problem, 0, 12).compute({0, 3, 12}, Maxima::of_all));
  EXPECT_THROW(
      attention_nodes(sharded.shape, sharded.q(), sharded.k(0), sharded.v(0), problem.kv_of_head, Floats(23)),
      std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
