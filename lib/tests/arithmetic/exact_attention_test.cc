#include "shardcheck/arithmetic/exact_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "exact_oracle.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

using oracle::bits;
using oracle::Kind;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Problem {
  Problem(Stream& stream, Kind kind, std::int64_t rows, std::int64_t kv_heads, std::int64_t head_dim) {
    const std::int64_t heads = kv_heads * stream.integer(1, 3);
    shape.rows = shape.keys = rows;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = head_dim;
    shape.q_stride = heads * head_dim + 1;
    shape.k_stride = kv_heads * head_dim + 2;
    shape.v_stride = kv_heads * head_dim;
    shape.out_stride = heads * head_dim + 3;
    shape.causal = stream.chance(2, 3);
    q = oracle::values_of_kind(stream, Kind::normal, rows, shape.q_stride);
    k = oracle::values_of_kind(stream, Kind::normal, rows, shape.k_stride);
    v = oracle::values_of_kind(stream, kind, rows, shape.v_stride);
    const float sharpness = static_cast<float>(stream.integer(1, 12));
    for (float& value : q) value *= sharpness;
    for (std::int64_t h = 0; h < heads; ++h) kv_of_head.push_back(stream.integer(0, kv_heads - 1));
  }

  static Problem draw(Stream& stream, Kind kind) {
    const std::int64_t rows = stream.integer(1, 40), kv_heads = stream.integer(1, 3);
    return Problem(stream, kind, rows, kv_heads, stream.integer(1, 24));
  }

  /// ALiBi slopes, sinks (some above every score) or both.
  void add_biases(Stream& stream) {
    const std::int64_t which = stream.integer(1, 3);
    slopes = oracle::random_values(stream, shape.heads);
    sinks = oracle::random_values(stream, shape.heads);
    for (float& sink : sinks) sink *= stream.chance(1, 3) ? 100.0F : 1.0F;
    if (which != 2) shape.slopes = slopes.data();
    if (which != 1) shape.sinks = sinks.data();
  }

  Floats no_outputs() const { return Floats(at(shape.rows * shape.out_stride), 42.0F); }

  Floats run() const {
    Floats out = no_outputs();
    exact_attention(shape, q.data(), k.data(), v.data(), kv_of_head, out.data());
    return out;
  }

  float score(std::int64_t h, std::int64_t i, std::int64_t j) const {
    const float dot = oracle::exact_dot(
        shape.head_dim, [&](std::int64_t d) { return q[at(i * shape.q_stride + h * shape.head_dim + d)]; },
        [&](std::int64_t d) { return k[at(j * shape.k_stride + kv_of_head[at(h)] * shape.head_dim + d)]; });
    const float scaled = dot * (1.0F / std::sqrt(static_cast<float>(shape.head_dim)));
    return shape.slopes == nullptr ? scaled : std::fma(shape.slopes[h], static_cast<float>(j - i), scaled);
  }

  /// Outputs of one query and head by the definition.
  Floats expected(std::int64_t h, std::int64_t i) const {
    Floats weights;
    for (std::int64_t j = 0; j < (shape.causal ? i + 1 : shape.rows); ++j) weights.push_back(score(h, i, j));
    float top = *std::max_element(weights.begin(), weights.end());
    if (shape.sinks != nullptr) top = std::max(top, shape.sinks[h]);
    const auto weight_of = [top](float score) {
      const double units = std::nearbyint(std::ldexp(static_cast<double>(exp_f32(score - top)), 44));
      return static_cast<float>(std::ldexp(units, -44));
    };
    oracle::ExactSum denominator;
    for (float& weight : weights) {
      weight = weight_of(weight);
      denominator.add_product(weight, 1.0F);
    }
    if (shape.sinks != nullptr) denominator.add_product(weight_of(shape.sinks[h]), 1.0F);
    Floats out;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const float numerator = oracle::exact_dot(
          std::ssize(weights), [&](std::int64_t j) { return weights[at(j)]; },
          [&](std::int64_t j) { return v[at(j * shape.v_stride + kv_of_head[at(h)] * shape.head_dim + d)]; });
      out.push_back(numerator / denominator.round());
    }
    return out;
  }

  Floats expected() const {
    Floats out = no_outputs();
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const Floats head = expected(h, i);
        std::copy(head.begin(), head.end(), out.begin() + i * shape.out_stride + h * shape.head_dim);
      }
    }
    return out;
  }

  AttentionShape shape;
  Floats q, k, v, slopes, sinks;
  std::vector<std::int64_t> kv_of_head;
};

// Bits, every NaN being one: which NaN a division passes on differs by processor.
std::vector<std::uint32_t> pattern(Floats values) {
  for (float& value : values) {
    if (std::isnan(value)) value = kNan;
  }
  return bits(values);
}

TEST(ExactAttention, EqualsTheDefinitionOnEveryKernel) {
  Stream stream(1, "exact_attention");
  for (const Kind kind : oracle::kKinds) {
    for (int draw = 0; draw < 5; ++draw) {
      const Problem problem = Problem::draw(stream, kind);
      const auto expected = pattern(problem.expected());
      for (const std::string& kernel : exact_kernels()) {
        const oracle::ForcedKernel forced(kernel);
        ASSERT_EQ(pattern(problem.run()), expected) << kernel << " kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST(ExactAttention, WithSlopesAndSinksEqualsTheDefinition) {
  Stream stream(10, "exact_attention");
  for (const Kind kind : oracle::kKinds) {
    for (int draw = 0; draw < 5; ++draw) {
      Problem problem = Problem::draw(stream, kind);
      problem.add_biases(stream);
      ASSERT_EQ(pattern(problem.run()), pattern(problem.expected())) << "kind " << static_cast<int>(kind);
    }
  }
}

TEST(ExactAttention, InChunksOverCachedKeysHasTheBitsOfPrefill) {
  Stream stream(11, "exact_attention");
  for (int draw = 0; draw < 20; ++draw) {
    Problem problem = Problem::draw(stream, Kind::normal);
    if (stream.chance(1, 2)) problem.add_biases(stream);
    Floats chunks = problem.no_outputs();
    for (std::int64_t first = 0; first < problem.shape.rows;) {
      AttentionShape chunk = problem.shape;
      chunk.first_query = first;
      chunk.rows = stream.integer(1, stream.chance(1, 2) ? 1 : problem.shape.rows - first);
      if (chunk.causal) chunk.keys = first + chunk.rows;
      exact_attention(chunk, problem.q.data() + first * chunk.q_stride, problem.k.data(), problem.v.data(),
                      problem.kv_of_head, chunks.data() + first * chunk.out_stride);
      first += chunk.rows;
    }
    ASSERT_EQ(bits(chunks), bits(problem.run()));
  }
}

TEST(ExactAttention, HasTheSameBitsOnEverySimdTarget) {
  Stream stream(2, "exact_attention");
  const Problem problem(stream, Kind::normal, 33, 2, 16);
  const auto expected = bits(problem.run());
  for (const std::string& target : simd_targets()) {
    const oracle::ForcedTarget forced(target);
    EXPECT_EQ(bits(problem.run()), expected) << target;
  }
}

TEST(ExactAttention, DoesNotDependOnKeyBlockOrTree) {
  Stream stream(3, "exact_attention");
  Problem problem = Problem::draw(stream, Kind::normal);
  const auto expected = bits(problem.run());
  problem.shape.key_block = 3;
  problem.shape.shape = TreeShape::linear;
  EXPECT_EQ(bits(problem.run()), expected);
}

TEST(ExactAttention, OfAQueryIsThatOfTheKeysItSees) {
  Stream stream(4, "exact_attention");
  for (int draw = 0; draw < 10; ++draw) {
    Problem problem = Problem::draw(stream, Kind::normal);
    problem.shape.causal = true;
    const Floats all = problem.run();
    problem.shape.rows = problem.shape.keys = stream.integer(1, problem.shape.rows);
    const Floats fewer = problem.run();
    const auto seen = at(problem.shape.rows * problem.shape.out_stride);
    EXPECT_EQ(bits(fewer), bits(std::span(all).first(seen)));
  }
}

// The keys of one rank, copied in the order of its positions.
struct RankKeys {
  RankKeys(const Problem& problem, std::vector<std::int64_t> chosen) : positions(std::move(chosen)) {
    for (const std::int64_t j : positions) {
      const auto row = [j](const Floats& from, std::int64_t stride) { return from.begin() + j * stride; };
      k.insert(k.end(), row(problem.k, problem.shape.k_stride),
               row(problem.k, problem.shape.k_stride) + problem.shape.k_stride);
      v.insert(v.end(), row(problem.v, problem.shape.v_stride),
               row(problem.v, problem.shape.v_stride) + problem.shape.v_stride);
    }
  }
  ExactKeys keys() const { return {k.data(), v.data(), positions}; }

  std::vector<std::int64_t> positions;
  Floats k, v;
};

std::vector<RankKeys> deal(Stream& stream, const Problem& problem, std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> positions(at(ranks));
  for (std::int64_t j = 0; j < problem.shape.rows; ++j) {
    auto& owner = positions[at(stream.integer(0, ranks - 1))];
    owner.insert(owner.begin() + stream.integer(0, std::ssize(owner)), j);
  }
  std::vector<RankKeys> dealt;
  for (auto& chosen : positions) dealt.emplace_back(problem, std::move(chosen));
  return dealt;
}

std::vector<ExactAttentionPartial> partials_of(const Problem& problem, const std::vector<RankKeys>& ranks) {
  Floats maxima(at(problem.shape.heads * problem.shape.rows), -kInfinity);
  for (const RankKeys& rank : ranks) {
    const Floats own =
        exact_attention_maxima(problem.shape, problem.q.data(), rank.keys(), problem.kv_of_head);
    for (std::size_t i = 0; i < maxima.size(); ++i) maxima[i] = std::max(maxima[i], own[i]);
  }
  const float* sinks = problem.shape.sinks;
  for (std::size_t i = 0; sinks != nullptr && i < maxima.size(); ++i) {
    maxima[i] = std::max(maxima[i], sinks[i / at(problem.shape.rows)]);
  }
  std::vector<ExactAttentionPartial> partials;
  for (const RankKeys& rank : ranks) {
    partials.push_back(
        exact_attention_partial(problem.shape, problem.q.data(), rank.keys(), problem.kv_of_head, maxima));
  }
  return partials;
}

TEST(ExactAttention, HasTheSameBitsHoweverKeyPositionsArePartitioned) {
  Stream stream(5, "exact_attention");
  for (const Kind kind : oracle::kKinds) {
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
      Problem problem = Problem::draw(stream, kind);
      if (ranks % 2 == 0) problem.add_biases(stream);
      auto partials = partials_of(problem, deal(stream, problem, ranks));
      while (partials.size() > 1) {
        std::swap(partials[at(stream.integer(0, std::ssize(partials) - 1))], partials.back());
        const auto last = ExactAttentionPartial::from_bytes(partials.back().bytes());
        partials.pop_back();
        partials[at(stream.integer(0, std::ssize(partials) - 1))].merge(last);
      }
      Floats out = problem.no_outputs();
      partials.front().round(problem.shape, out.data());
      ASSERT_EQ(pattern(out), pattern(problem.run())) << ranks << " ranks, kind " << static_cast<int>(kind);
    }
  }
}

TEST(ExactAttention, KeepsValuesThatAreNotFiniteFromQueriesThatDoNotSeeThem) {
  Stream stream(6, "exact_attention");
  Problem problem(stream, Kind::normal, 6, 1, 3);
  problem.shape.causal = true;
  problem.v[at(3 * problem.shape.v_stride + 1)] = kInfinity;
  problem.v[at(4 * problem.shape.v_stride + 2)] = kNan;
  const Floats out = problem.run();
  EXPECT_EQ(pattern(out), pattern(problem.expected()));
  EXPECT_TRUE(std::isfinite(out[at(2 * problem.shape.out_stride + 1)]));
  EXPECT_FALSE(std::isfinite(out[at(3 * problem.shape.out_stride + 1)]));
  EXPECT_TRUE(std::isnan(out[at(4 * problem.shape.out_stride + 2)]));
}

TEST(ExactAttention, OfANanOrInfiniteScoreIsNanForTheQueriesThatSeeIt) {
  Stream stream(7, "exact_attention");
  for (const float special : {kNan, kInfinity}) {
    Problem problem(stream, Kind::normal, 7, 1, 2);
    problem.shape.causal = true;
    // An infinite score where q is positive; the other queries would see -inf, which is a weight of 0.
    for (float& value : problem.q) value = std::fabs(value) + 0.5F;
    problem.k[at(4 * problem.shape.k_stride)] = special;
    const Floats out = problem.run();
    for (std::int64_t i = 0; i < 7; ++i)
      EXPECT_EQ(std::isnan(out[at(i * problem.shape.out_stride)]), i >= 4) << i;
    auto partials = partials_of(problem, deal(stream, problem, 3));
    partials[0].merge(partials[2]);
    partials[0].merge(partials[1]);
    Floats merged = problem.no_outputs();
    partials[0].round(problem.shape, merged.data());
    EXPECT_EQ(pattern(merged), pattern(out));
  }
}

TEST(ExactAttentionPartial, WithASinkAboveItsMaximumOrWithoutMaximaIsRefused) {
  Stream stream(12, "exact_attention");
  Problem problem(stream, Kind::normal, 4, 1, 3);
  ExactAttentionPartial without = partials_of(problem, deal(stream, problem, 1)).front();
  Floats sinks(at(problem.shape.heads), 0.0F), out = problem.no_outputs();
  problem.shape.sinks = sinks.data();
  const ExactAttentionPartial with = partials_of(problem, deal(stream, problem, 1)).front();
  EXPECT_NO_THROW(with.round(problem.shape, out.data()));
  EXPECT_THROW(without.round(problem.shape, out.data()), std::invalid_argument);
  EXPECT_THROW(without.merge(with), std::invalid_argument);
  sinks[0] = 1000.0F;
  EXPECT_THROW(with.round(problem.shape, out.data()), std::invalid_argument);
}

class BytesOfAPartial : public testing::TestWithParam<bool> {};  // with sinks

INSTANTIATE_TEST_SUITE_P(ExactAttentionPartial, BytesOfAPartial, testing::Bool());

TEST_P(BytesOfAPartial, AreRefusedWhereTheyAreNone) {
  Stream stream(8, "exact_attention");
  Problem problem(stream, Kind::any_pattern, 5, 1, 3);
  const Floats sinks(at(problem.shape.heads), 0.5F);
  if (GetParam()) problem.shape.sinks = sinks.data();
  const auto good = partials_of(problem, deal(stream, problem, 1)).front().bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(ExactAttentionPartial::from_bytes(std::span(good).first(size)), std::invalid_argument);
  }
  int accepted = 0, refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x90};
    try {
      auto partial = ExactAttentionPartial::from_bytes(bad);
      partial.merge(ExactAttentionPartial::from_bytes(good));
      Floats out = problem.no_outputs();
      partial.round(problem.shape, out.data());
      ++accepted;
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(accepted, 0);  // a changed sum is a sum all the same
}

TEST(ExactAttention, RefusesWhatDoesNotFit) {
  Stream stream(9, "exact_attention");
  const Problem problem(stream, Kind::normal, 4, 2, 3);
  Floats out = problem.no_outputs();
  const auto attend = [&](const AttentionShape& shape, const std::vector<std::int64_t>& kv_of_head) {
    exact_attention(shape, problem.q.data(), problem.k.data(), problem.v.data(), kv_of_head, out.data());
  };
  std::vector<std::int64_t> wrong = problem.kv_of_head;
  wrong.back() = 2;
  EXPECT_THROW(attend(problem.shape, wrong), std::invalid_argument);
  wrong.pop_back();
  EXPECT_THROW(attend(problem.shape, wrong), std::invalid_argument);
  AttentionShape endless = problem.shape;
  endless.rows = endless.keys = (std::int64_t{1} << 18) + 1;
  EXPECT_THROW(attend(endless, problem.kv_of_head), std::invalid_argument);

  const RankKeys rank(problem, {0, 1, 2, 3});
  const auto partial = [&](const Floats& maxima) {
    return exact_attention_partial(problem.shape, problem.q.data(), rank.keys(), problem.kv_of_head, maxima);
  };
  Floats maxima = exact_attention_maxima(problem.shape, problem.q.data(), rank.keys(), problem.kv_of_head);
  ExactAttentionPartial whole = partial(maxima);
  EXPECT_THROW(partial(Floats(maxima.begin() + 1, maxima.end())), std::invalid_argument);
  maxima.back() = std::nextafter(maxima.back(), -kInfinity);
  EXPECT_THROW(partial(maxima), std::invalid_argument);
  EXPECT_THROW(whole.merge(ExactAttentionPartial()), std::invalid_argument);
  AttentionShape other = problem.shape;
  other.head_dim = 2;
  EXPECT_THROW(whole.round(other, out.data()), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
