#include "shardcheck/tensor/stream.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/functions.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck {
namespace {

using Block = std::array<std::uint32_t, 4>;

Block philox(std::uint64_t block, std::uint32_t domain, std::uint64_t key) {
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(block),
                                    static_cast<std::uint32_t>(block >> 32), domain, 0};
  const std::uint32_t keys[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  Block out;
  philox4x32_10(counter, keys, out.data());
  return out;
}

// fill_normal by its definition, one element at a time, with std::fma and the scalar functions.
float normal_by_definition(std::uint64_t key, std::uint64_t index, float mean, float stddev) {
  const Block words = philox(index / 4, 1, key);
  const std::size_t pair = index % 4 / 2 * 2;
  const auto half = static_cast<float>(static_cast<std::int32_t>(words[pair] >> 1));
  const float radius = std::sqrt(-2.0f * log_f32(std::fma(half, 0x1p-31f, 0x1p-32f)));
  const float angle = static_cast<float>(std::bit_cast<std::int32_t>(words[pair + 1])) * 0x1.921fb6p-30f;
  return std::fma(radius * (index % 2 == 0 ? cos_f32(angle) : sin_f32(angle)), stddev, mean);
}

float uniform_by_definition(std::uint64_t key, std::uint64_t index, float low, float high) {
  const auto unit = static_cast<float>(philox(index / 4, 2, key)[index % 4] >> 8) * 0x1p-24f;
  const float value = std::fma(unit, high - low, low);
  return value < high ? value : std::nextafter(high, low);
}

// Sum over bins of (observed - expected)^2 / expected, equal expectations.
double chi_square(const std::vector<std::int64_t>& counts) {
  double total = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const std::int64_t count : counts)
    sum += std::pow(static_cast<double>(count) - expected, 2) / expected;
  return sum;
}

// Mean + 5 standard deviations of a chi-square with that many bins.
double chi_square_limit(std::size_t bins) {
  const auto freedom = static_cast<double>(bins - 1);
  return freedom + 5 * std::sqrt(2 * freedom);
}

class EachSimdTarget : public testing::Test {
 protected:
  void TearDown() override { force_simd_target(""); }
};

TEST(Philox, MatchesThePublishedVectors) {
  struct Vector {
    std::uint32_t counter[4], key[2], out[4];
  };
  // Random123, tests/kat_vectors, lines "philox4x32 10".
  constexpr Vector kVectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& vector : kVectors) {
    std::uint32_t out[4];
    philox4x32_10(vector.counter, vector.key, out);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(out[w], vector.out[w]);
  }
}

TEST(StreamKey, IsXxh3OfTheNameSeeded) {
  EXPECT_EQ(stream_key(0, ""), 0x2d06800538d394c2U);  // xxHash's published value for empty input
  EXPECT_EQ(stream_key(17, "weights"), XXH3_64bits_withSeed("weights", 7, 17));
}

TEST(Stream, ReadsTheBlocksOfItsKeyInOrder) {
  const std::uint64_t key = stream_key(1, "order");
  Stream words(key);
  Stream pairs(key);
  for (std::uint64_t block = 0; block < 100; ++block)
    for (const std::uint32_t word : philox(block, 0, key)) ASSERT_EQ(words.next_u32(), word);
  for (std::uint64_t block = 0; block < 100; ++block) {
    const Block word = philox(block, 0, key);
    ASSERT_EQ(pairs.next_u64(), word[0] | std::uint64_t{word[1]} << 32);
    ASSERT_EQ(pairs.next_u64(), word[2] | std::uint64_t{word[3]} << 32);
  }
}

TEST(Stream, NamesSeedsAndChildrenGiveDistinctStreams) {
  const Stream parent(7, "parent");
  std::vector<Stream> streams = {parent,
                                 Stream(8, "parent"),
                                 Stream(7, "parenu"),
                                 Stream(7, ""),
                                 parent.child("parent"),
                                 parent.child("x"),
                                 parent.child("y"),
                                 parent.child("x").child("y"),
                                 parent.child("y").child("x")};
  std::set<std::uint64_t> seen;
  for (Stream& stream : streams)
    for (int i = 0; i < 1000; ++i) seen.insert(stream.next_u64());
  EXPECT_EQ(seen.size(), streams.size() * 1000);
}

TEST(Stream, AChildDoesNotDependOnWhatItsParentHasRead) {
  Stream parent(7, "parent");
  Stream before = parent.child("x");
  parent.next_u32();
  Stream after = parent.child("x");
  EXPECT_EQ(before.next_u64(), after.next_u64());
}

TEST(Stream, IntegersReachBothEndsWithoutBias) {
  Stream stream(3, "integer");
  std::vector<std::int64_t> counts(7);
  for (int i = 0; i < 70000; ++i) {
    const std::int64_t value = stream.integer(-3, 3);
    ASSERT_GE(value, -3);
    ASSERT_LE(value, 3);
    ++counts[static_cast<std::size_t>(value + 3)];
  }
  EXPECT_LT(chi_square(counts), chi_square_limit(counts.size()));
}

TEST(Stream, IntegersOfAWideRangeAreUnbiased) {
  // 2^64 is 2.67 times this range: taking a remainder would draw the last third a third less often.
  constexpr std::int64_t kThird = std::int64_t{1} << 61;
  Stream stream(3, "wide");
  std::vector<std::int64_t> counts(3);
  for (int i = 0; i < 30000; ++i)
    ++counts[static_cast<std::size_t>(stream.integer(0, 3 * kThird - 1) / kThird)];
  EXPECT_LT(chi_square(counts), chi_square_limit(counts.size()));
}

TEST(Stream, IntegersOfTheFullRangeAndOfOneValue) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();
  Stream stream(3, "full");
  int negative = 0;
  for (int i = 0; i < 1000; ++i) negative += stream.integer(kLow, kHigh) < 0 ? 1 : 0;
  EXPECT_NEAR(negative, 500, 80);  // 5 standard deviations
  for (const std::int64_t value : {kLow, std::int64_t{0}, kHigh})
    EXPECT_EQ(stream.integer(value, value), value);
  EXPECT_THROW(stream.integer(1, 0), std::invalid_argument);
  EXPECT_THROW(stream.integer(kHigh, kLow), std::invalid_argument);
}

TEST(Stream, UnitIsAMultipleOfTwoToTheMinus24) {
  Stream stream(3, "unit");
  std::vector<std::int64_t> counts(64);
  for (int i = 0; i < 64000; ++i) {
    const float value = stream.unit();
    ASSERT_GE(value, 0.0f);
    ASSERT_LT(value, 1.0f);
    ASSERT_EQ(value * 0x1p24f, std::floor(value * 0x1p24f));
    ++counts[static_cast<std::size_t>(value * 64.0f)];
  }
  EXPECT_LT(chi_square(counts), chi_square_limit(counts.size()));
}

TEST(Stream, ChanceHasItsProbability) {
  Stream stream(3, "chance");
  int hits = 0;
  for (int i = 0; i < 30000; ++i) {
    hits += stream.chance(1, 3) ? 1 : 0;
    ASSERT_FALSE(stream.chance(0, 5));
    ASSERT_TRUE(stream.chance(5, 5));
  }
  EXPECT_NEAR(hits, 10000, 410);  // 5 standard deviations
  EXPECT_THROW(stream.chance(1, 0), std::invalid_argument);
  EXPECT_THROW(stream.chance(-1, 2), std::invalid_argument);
  EXPECT_THROW(stream.chance(3, 2), std::invalid_argument);
}

TEST(Stream, PickReachesEveryElement) {
  Stream stream(3, "pick");
  const std::vector<std::string> options = {"a", "b", "c"};
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(stream.pick(options));
  EXPECT_EQ(seen.size(), options.size());
  EXPECT_THROW(stream.pick(std::vector<int>{}), std::invalid_argument);
}

TEST_F(EachSimdTarget, NormalsAreTheDefinition) {
  const std::uint64_t key = stream_key(5, "normal");
  const std::uint64_t first = (std::uint64_t{1} << 34) - 2001;  // block numbers cross 2^32
  std::vector<float> expected(4003);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = normal_by_definition(key, first + i, 0.25f, 3.0f);
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    std::vector<float> values(expected.size());
    fill_normal(values, key, 0.25f, 3.0f, first);
    EXPECT_EQ(values, expected) << target;
  }
}

TEST_F(EachSimdTarget, UniformsAreTheDefinition) {
  const std::uint64_t key = stream_key(5, "uniform");
  std::vector<float> expected(4003);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = uniform_by_definition(key, 3 + i, -1.5f, 2.0f);
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    std::vector<float> values(expected.size());
    fill_uniform(values, key, -1.5f, 2.0f, 3);
    EXPECT_EQ(values, expected) << target;
  }
}

TEST_F(EachSimdTarget, AnElementDoesNotDependOnTheRangeItWasMadeIn) {
  const std::uint64_t key = stream_key(5, "range");
  std::vector<float> normals(300);
  std::vector<float> uniforms(300);
  fill_normal(normals, key, 0.0f, 1.0f);
  fill_uniform(uniforms, key, 0.0f, 1.0f);
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    for (std::size_t first = 0; first < 70; ++first) {
      for (const std::size_t size : {0U, 1U, 3U, 4U, 63U, 64U, 65U, 130U}) {
        std::vector<float> part(size + 1, 99.0f);  // one more, to see a write past the end
        fill_normal(std::span(part).first(size), key, 0.0f, 1.0f, first);
        ASSERT_TRUE(
            std::equal(part.begin(), part.end() - 1, normals.begin() + static_cast<std::ptrdiff_t>(first)))
            << target << " " << first << " " << size;
        fill_uniform(std::span(part).first(size), key, 0.0f, 1.0f, first);
        ASSERT_TRUE(
            std::equal(part.begin(), part.end() - 1, uniforms.begin() + static_cast<std::ptrdiff_t>(first)))
            << target << " " << first << " " << size;
        ASSERT_EQ(part.back(), 99.0f);
      }
    }
  }
}

TEST(FillNormal, HasTheMomentsAndTheDistributionOfANormal) {
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  fill_normal(values, stream_key(11, "moments"), 0.0f, 1.0f);
  double sums[5] = {};
  for (const float value : values)
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(static_cast<double>(value), power);
  const double n = kCount;
  // Five standard errors: Var z = 1, Var z^2 = 2, Var z^3 = 15, Var z^4 = 96.
  EXPECT_NEAR(sums[1] / n, 0.0, 5 * std::sqrt(1 / n));
  EXPECT_NEAR(sums[2] / n, 1.0, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(sums[3] / n, 0.0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(sums[4] / n, 3.0, 5 * std::sqrt(96 / n));

  std::sort(values.begin(), values.end());
  double distance = 0;  // Kolmogorov-Smirnov
  for (std::size_t i = 0; i < kCount; ++i) {
    const double cdf = 0.5 * std::erfc(-static_cast<double>(values[i]) / std::sqrt(2.0));
    distance = std::max({distance, cdf - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - cdf});
  }
  EXPECT_LT(distance, 2.2 / std::sqrt(n));  // probability 1.2e-4 for a true normal
  EXPECT_GT(values.back(), 4.5f);           // the tail is there: 3.6 expected beyond
  EXPECT_LT(values.front(), -4.5f);
}

TEST(FillNormal, NeighboursAreUncorrelated) {
  constexpr std::size_t kCount = 1 << 18;
  std::vector<float> values(kCount);
  fill_normal(values, stream_key(11, "neighbours"), 0.0f, 1.0f);
  for (std::size_t lag = 1; lag <= 8; ++lag) {
    double product = 0;
    double squares = 0;
    for (std::size_t i = lag; i < kCount; ++i) {
      const double a = values[i];
      const double b = values[i - lag];
      product += a * b;
      squares += (a * a - 1) * (b * b - 1) / 2;
    }
    EXPECT_LT(std::abs(product), 5 * std::sqrt(kCount)) << lag;
    EXPECT_LT(std::abs(squares), 5 * std::sqrt(kCount)) << lag;
  }
}

TEST(FillNormal, KeysGiveDistinctValues) {
  std::vector<float> one(64);
  std::vector<float> other(64);
  fill_normal(one, stream_key(1, "a"), 0.0f, 1.0f);
  fill_normal(other, stream_key(1, "b"), 0.0f, 1.0f);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], other[i]);
}

TEST(FillNormal, DegenerateScalesAreExact) {
  std::vector<float> values(100);
  fill_normal(values, 1, 2.5f, 0.0f);
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float value) { return value == 2.5f; }));
}

// Every recorded floor and every replayed case rests on these bits.
TEST(FillNormal, BitsAreThoseOfEveryEarlierRelease) {
  std::vector<float> values(4096);
  fill_normal(values, stream_key(17, "layers.0.q_proj"), 0.0f, 0.02f);
  EXPECT_EQ(XXH3_64bits(values.data(), values.size() * sizeof(float)), 0x34dfe522380bc2d7U);
}

TEST(FillUniform, CoversItsRangeEvenly) {
  std::vector<float> values(1 << 18);
  fill_uniform(values, stream_key(11, "even"), -2.0f, 6.0f);
  std::vector<std::int64_t> counts(256);
  for (const float value : values) {
    ASSERT_GE(value, -2.0f);
    ASSERT_LT(value, 6.0f);
    ++counts[static_cast<std::size_t>((value + 2.0f) * 32.0f)];
  }
  EXPECT_LT(chi_square(counts), chi_square_limit(counts.size()));
}

TEST(FillUniform, NeverReachesTheUpperBound) {
  std::vector<float> values(4096);
  const float high = std::nextafter(1.0f, 2.0f);
  fill_uniform(values, 1, 1.0f, high);
  for (const float value : values) ASSERT_EQ(value, 1.0f);
  fill_uniform(values, 1, 3.0f, 3.0f);
  for (const float value : values) ASSERT_EQ(value, 3.0f);
}

TEST(FillUniform, ImpossibleBoundsAreRefused) {
  std::vector<float> values(4);
  const float infinity = std::numeric_limits<float>::infinity();
  const float max = std::numeric_limits<float>::max();
  EXPECT_THROW(fill_uniform(values, 1, 1.0f, 0.0f), std::invalid_argument);
  EXPECT_THROW(fill_uniform(values, 1, 0.0f, infinity), std::invalid_argument);
  EXPECT_THROW(fill_uniform(values, 1, std::nanf(""), 1.0f), std::invalid_argument);
  EXPECT_THROW(fill_uniform(values, 1, -max, max), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
