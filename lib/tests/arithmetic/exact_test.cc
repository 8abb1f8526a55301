#include "shardcheck/arithmetic/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "exact_oracle.h"

namespace shardcheck {
namespace {

using oracle::bits;
using oracle::ForcedKernel;
using oracle::Kind;
using oracle::kKinds;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<std::int64_t> iota(std::int64_t count) {
  std::vector<std::int64_t> all(at(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

template <typename T>
void shuffle(Stream& stream, std::vector<T>& values) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[at(stream.integer(0, static_cast<std::int64_t>(i) - 1))]);
  }
}

// x [m, k] and w [n, k].
struct Problem {
  Problem(Stream& stream, Kind kind, std::int64_t m_, std::int64_t n_, std::int64_t k_)
      : m(m_), n(n_), k(k_), x(oracle::values_of_kind(stream, kind, m, k)) {
    w = oracle::values_of_kind(stream, kind == Kind::cancelling ? Kind::normal : kind, n, k);
    if (kind != Kind::cancelling) return;
    // The second half of x repeats the first; with that of w negated the products cancel.
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t c = k / 2; c < k / 2 * 2; ++c) w[at(i * k + c)] = -w[at(i * k + c - k / 2)];
    }
  }

  static Problem draw(Stream& stream, Kind kind) {
    const std::int64_t m = stream.integer(1, 9), n = stream.integer(1, 40);
    return Problem(stream, kind, m, n, stream.integer(0, 150));
  }

  Floats expected() const {
    Floats y;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        y.push_back(oracle::exact_dot(
            k, [&](std::int64_t c) { return x[at(i * k + c)]; },
            [&](std::int64_t c) { return w[at(j * k + c)]; }));
      }
    }
    return y;
  }

  ExactWeights weights() const { return ExactWeights(w.data(), n, k, k); }

  Floats run() const {
    Floats y(at(m * n));
    exact_gemm(x.data(), k, m, weights(), y.data(), n);
    return y;
  }

  /// The columns with these indices, in this order.
  Problem columns(const std::vector<std::int64_t>& chosen) const {
    Problem part = *this;
    part.k = std::ssize(chosen);
    part.x = pick(x, m, chosen);
    part.w = pick(w, n, chosen);
    return part;
  }

  std::int64_t m, n, k;
  Floats x, w;

 private:
  Floats pick(const Floats& from, std::int64_t rows, const std::vector<std::int64_t>& chosen) const {
    Floats to;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (const std::int64_t c : chosen) to.push_back(from[at(i * k + c)]);
    }
    return to;
  }
};

// One product of vectors on every kernel, in whole vectors of outputs and beyond them.
void expect_dot(const Floats& a, const Floats& b, float expected) {
  LongAccumulator sum;
  for (std::size_t c = 0; c < a.size(); ++c) sum.add_product(a[c], b[c]);
  EXPECT_EQ(bits(Floats{sum.round()}), bits(Floats{expected}));
  const std::int64_t n = 17, k = std::ssize(a);
  Floats rows;
  for (std::int64_t j = 0; j < n; ++j) rows.insert(rows.end(), b.begin(), b.end());
  const auto all = bits(Floats(at(n), expected));
  for (const std::string& kernel : exact_kernels()) {
    const ForcedKernel forced(kernel);
    const ExactWeights w(rows.data(), n, k, k);
    Floats y(at(n));
    exact_gemm(a.data(), k, 1, w, y.data(), n);
    EXPECT_EQ(bits(y), all) << kernel;
    exact_partial(a.data(), k, 1, w).round(y.data(), n);
    EXPECT_EQ(bits(y), all) << kernel;
  }
}

TEST(ExactOracle, RoundsOneProductAsTheProcessorDoes) {
  Stream stream(1, "exact");
  for (int draw = 0; draw < 20000; ++draw) {
    const Kind kind = kKinds[stream.next_u32() % std::size(kKinds)];
    const float a = oracle::float_of_kind(stream, kind), b = oracle::float_of_kind(stream, kind);
    oracle::ExactSum sum;
    sum.add_product(a, b);
    float expected = static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
    if (a == 0.0F || b == 0.0F) expected += 0.0F;  // no sum is -0
    if (std::isnan(expected)) expected = kNan;
    ASSERT_EQ(bits(Floats{sum.round()}), bits(Floats{expected})) << a << ' ' << b;
  }
}

TEST(LongAccumulator, EqualsTheOracleWhateverIsAdded) {
  Stream stream(2, "exact");
  for (int draw = 0; draw < 2000; ++draw) {
    const Kind kind = kKinds[stream.next_u32() % std::size(kKinds)];
    const std::int64_t k = stream.integer(0, 40);
    const Floats a = oracle::values_of_kind(stream, kind, 1, k),
                 b = oracle::values_of_kind(stream, kind, 1, k);
    LongAccumulator products, values;
    oracle::ExactSum expected_products, expected_values;
    for (std::size_t c = 0; c < a.size(); ++c) {
      products.add_product(a[c], b[c]);
      expected_products.add_product(a[c], b[c]);
      values.add(a[c]);
      expected_values.add_product(a[c], 1.0F);
    }
    ASSERT_EQ(bits(Floats{products.round()}), bits(Floats{expected_products.round()}));
    ASSERT_EQ(bits(Floats{values.round()}), bits(Floats{expected_values.round()}));
    EXPECT_EQ(LongAccumulator::from_words(products.words()), products);
  }
}

TEST(LongAccumulator, StateDependsOnTheAddendsNotOnTheirOrder) {
  Stream stream(3, "exact");
  for (const Kind kind : kKinds) {
    Floats values = oracle::values_of_kind(stream, kind, 1, 64);
    LongAccumulator whole, left, right;
    for (const float value : values) whole.add(value);
    shuffle(stream, values);
    for (std::size_t i = 0; i < values.size(); ++i) (i % 3 == 0 ? left : right).add(values[i]);
    left.merge(right);
    EXPECT_EQ(left, whole);
  }
}

TEST(LongAccumulator, RefusesFlagsThatAreNone) {
  auto words = LongAccumulator().words();
  words.back() = 8;
  EXPECT_THROW(LongAccumulator::from_words(words), std::invalid_argument);
}

TEST(ExactGemm, EqualsTheOracleOnEveryKernel) {
  Stream stream(4, "exact");
  std::int64_t elements = 0;
  for (int draw = 0; draw < 150; ++draw) {
    for (const Kind kind : kKinds) {
      const Problem problem = Problem::draw(stream, kind);
      const auto expected = bits(problem.expected());
      for (const std::string& kernel : exact_kernels()) {
        const ForcedKernel forced(kernel);
        ASSERT_EQ(bits(problem.run()), expected) << kernel << " kind " << static_cast<int>(kind) << ' '
                                                 << problem.m << 'x' << problem.n << 'x' << problem.k;
      }
      elements += problem.m * problem.n;
    }
  }
  EXPECT_GE(elements, 100000);
}

TEST(ExactGemm, EqualsTheOracleOnEverySimdTarget) {
  Stream stream(5, "exact");
  for (const Kind kind : kKinds) {
    const Problem problem(stream, kind, 7, 37, 131);
    const auto expected = bits(problem.expected());
    for (const std::string& target : simd_targets()) {
      const oracle::ForcedTarget forced(target);
      ASSERT_EQ(bits(problem.run()), expected) << target;
      for (const std::string& kernel : exact_kernels()) {
        const ForcedKernel forced_kernel(kernel);
        ASSERT_EQ(bits(problem.run()), expected) << target << ' ' << kernel;
      }
    }
  }
}

TEST(ExactGemm, EqualsTheOracleForEveryHeightAndWidth) {
  Stream stream(6, "exact");
  for (const std::string& kernel : exact_kernels()) {
    const ForcedKernel forced(kernel);
    for (std::int64_t size = 1; size <= 35; ++size) {
      const Problem tall(stream, Kind::normal, size, 3, 5), broad(stream, Kind::normal, 2, size, 5);
      ASSERT_EQ(bits(tall.run()), bits(tall.expected())) << kernel << ' ' << size;
      ASSERT_EQ(bits(broad.run()), bits(broad.expected())) << kernel << ' ' << size;
    }
    const Problem many(stream, Kind::any_exponent, 450, 2, 3);
    ASSERT_EQ(bits(many.run()), bits(many.expected())) << kernel;
  }
}

TEST(ExactGemm, EqualsTheOracleForLongSums) {
  Stream stream(7, "exact");
  for (const std::int64_t k : {4096, 16384, 16385, 65536, 100003}) {
    for (const Kind kind : {Kind::normal, Kind::huge_and_tiny, Kind::any_pattern}) {
      const Problem problem(stream, kind, 1, 2, k);
      const auto expected = bits(problem.expected());
      for (const std::string& kernel : exact_kernels()) {
        const ForcedKernel forced(kernel);
        ASSERT_EQ(bits(problem.run()), expected) << kernel << ' ' << k;
      }
    }
  }
}

// The largest integers of every row, all products of one sign, and the least, whose products are just below a
// multiple of the radix: the sums reach the bounds of the proof.
TEST(ExactGemm, EqualsTheOracleAtTheBoundsOfItsIntegers) {
  Stream stream(8, "exact");
  for (const std::int64_t k : {64, 2048, 16384, 40000}) {
    for (const float size : {std::nextafter(1.0F, 0.0F), 0x1p-45F}) {
      for (const float sign : {1.0F, -1.0F}) {
        Problem problem(stream, Kind::subnormal, 1, 1, k);
        std::fill(problem.x.begin(), problem.x.end(), size);
        std::fill(problem.w.begin(), problem.w.end(), sign * size);
        problem.x.front() = problem.w.front() = 0x1p-45F;  // the whole window is in use
        problem.x.back() = problem.w.back() = 0.75F;
        const auto expected = bits(problem.expected());
        for (const std::string& kernel : exact_kernels()) {
          const ForcedKernel forced(kernel);
          ASSERT_EQ(bits(problem.run()), expected) << kernel << ' ' << k << ' ' << size;
        }
      }
    }
  }
}

TEST(ExactGemm, RoundsTiesToEvenAndWhatIsBesideThemToTheirSide) {
  const float half = 0x1p-24F;  // half a unit in the last place of 1
  expect_dot({1.0F, half}, {1.0F, 1.0F}, 1.0F);
  expect_dot({1.0F + 2 * half, half}, {1.0F, 1.0F}, 1.0F + 4 * half);
  expect_dot({-1.0F, -half}, {1.0F, 1.0F}, -1.0F);
  for (const float tiny : {0x1p-60F, 0x1p-77F, 0x1p-100F, 0x1p-149F}) {
    // A first rounding to f64 or to a pair of f64 would lose `tiny` and leave a tie.
    expect_dot({1.0F, half, tiny}, {1.0F, 1.0F, 1.0F}, 1.0F + 2 * half);
    expect_dot({1.0F, half, -tiny}, {1.0F, 1.0F, 1.0F}, 1.0F);
    expect_dot({1.0F + 2 * half, half, -tiny}, {1.0F, 1.0F, 1.0F}, 1.0F + 2 * half);
    expect_dot({1.0F, half, tiny}, {1.0F, 1.0F, tiny}, 1.0F + 2 * half);
    expect_dot({1.0F, half, -tiny}, {1.0F, 1.0F, tiny}, 1.0F);
    expect_dot({-1.0F, -half, -tiny}, {1.0F, 1.0F, tiny}, -1.0F - 2 * half);
  }
}

// 24 bits, half a unit of the last, and next to nothing, in products that fit one window each: what is
// decisive lies far below the 53 bits of an f64. At every scale, also where results are subnormal or
// overflow.
TEST(ExactGemm, RoundsSumsBesideTiesToTheirSide) {
  Stream stream(27, "exact");
  for (int draw = 0; draw < 4000; ++draw) {
    const int scale = static_cast<int>(stream.integer(-150, 127)), half = scale / 2;
    const float lead = static_cast<float>(stream.integer(1 << 23, (1 << 24) - 1)) * 0x1p-23F;
    const auto sign = [&] { return stream.chance(1, 2) ? 1.0F : -1.0F; };
    const int below = static_cast<int>(stream.integer(13, 43)),
              more = static_cast<int>(stream.integer(13, 43));
    const float tiny = stream.chance(1, 5) ? 0.0F : std::ldexp(1.0F, -more);
    // Where the last bit kept is 2^-149, the tie is beside that.
    const int tie = scale >= -126 ? -24 : -150 - scale;
    Floats a = {lead, std::ldexp(1.0F, tie / 2), std::ldexp(1.0F, -below)};
    Floats b = {sign(), sign() * std::ldexp(1.0F, tie - tie / 2), sign() * tiny};
    if (scale < -126) a[0] = std::ldexp(std::floor(std::ldexp(lead, -1 - tie)), 1 + tie);
    for (float& value : a) value = std::ldexp(value, half);
    for (float& value : b) value = std::ldexp(value, scale - half);
    const auto value_of = [](const Floats& of) { return [&of](std::int64_t c) { return of[at(c)]; }; };
    expect_dot(a, b, oracle::exact_dot(3, value_of(a), value_of(b)));
  }
}

TEST(ExactGemm, UnderflowsGraduallyAndOverflowsToInfinity) {
  const float least = 0x1p-149F, most = std::numeric_limits<float>::max();
  expect_dot({0x1p-75F}, {0x1p-75F}, 0.0F);          // a tie
  expect_dot({-0x1p-75F}, {0x1p-75F}, -0.0F);        // an underflow keeps its sign
  expect_dot({0x1.000002p-75F}, {0x1p-75F}, least);  // above the tie
  expect_dot({0x1.8p-75F}, {0x1p-74F}, 2 * least);   // 1.5: a tie to even
  expect_dot({0x1p-74F, least}, {0x1p-76F, -least}, 0.0F);
  expect_dot({0x1p-74F, least}, {0x1p-76F, least}, least);
  expect_dot({0x1.fffffep-64F, 0x1p-75F}, {0x1p-63F, 0x1p-75F}, 0x1p-126F);
  expect_dot({most, 0x1p103F}, {1.0F, 1.0F}, kInfinity);  // the midpoint to 2^128
  expect_dot({most, 0x1.fffffep102F}, {1.0F, 1.0F}, most);
  expect_dot({most, most, -most}, {most, most, most}, kInfinity);
  expect_dot({most, 3.0F, -most}, {most, 1.0F, most}, 3.0F);  // sums on the way may be of any size
  expect_dot({1e38F, 1e-38F, -1e38F}, {1e38F, 1e-38F, 1e38F}, 0.0F);
  expect_dot({1e38F, 1e-38F, -1e38F}, {1.0F, 1.0F, 1.0F}, 1e-38F);
}

TEST(ExactGemm, FollowsTheRulesForZerosInfinitiesAndNan) {
  expect_dot({-0.0F, -0.0F}, {1.0F, 1.0F}, 0.0F);
  expect_dot({1.0F, -1.0F}, {-3.0F, -3.0F}, 0.0F);
  expect_dot({}, {}, 0.0F);
  expect_dot({kInfinity, -1e38F}, {1.0F, 1e38F}, kInfinity);
  expect_dot({-2.0F, 5.0F}, {kInfinity, 1.0F}, -kInfinity);
  expect_dot({kInfinity, kInfinity}, {1.0F, -1.0F}, kNan);
  expect_dot({kInfinity, 1.0F}, {0.0F, 1.0F}, kNan);
  expect_dot({0.0F, 1.0F}, {kInfinity, 1.0F}, kNan);
  expect_dot({kInfinity, 1.0F}, {kInfinity, 1.0F}, kInfinity);
  expect_dot({kNan, 1.0F}, {0.0F, 1.0F}, kNan);
  expect_dot({1.0F, kInfinity}, {-kNan, 1.0F}, kNan);
}

TEST(ExactGemm, SplitsRowsOfEveryWidthIntoWindows) {
  // Full significands far apart: every value of the row needs integer rows of its own.
  const Floats wide = {0x1.abcdefp127F,  -0x1.fedcbap80F,  0x1.123456p33F,  0x1.654321p-14F,
                       -0x1.fffffep-60F, 0x1.000002p-105F, 0x1.23456p-130F, -0x1p-149F};
  Stream stream(9, "exact");
  for (int draw = 0; draw < 40; ++draw) {
    Problem problem(stream, Kind::normal, 3, 17, 8);
    for (std::int64_t i = 0; i < problem.m; ++i) std::copy(wide.begin(), wide.end(), &problem.x[at(i * 8)]);
    if (draw % 2 == 0) std::copy(wide.rbegin(), wide.rend(), problem.w.begin());
    if (draw % 3 == 0) std::copy(wide.begin(), wide.end(), &problem.w[16 * 8]);
    for (const std::string& kernel : exact_kernels()) {
      const ForcedKernel forced(kernel);
      ASSERT_EQ(bits(problem.run()), bits(problem.expected())) << kernel;
    }
  }
}

// The leading integer rows give an odd sum of more than 53 bits, the further ones nearly its negative: an f64
// sum over windows keeps no correct bit. For windows of 45 and of 51 bits.
TEST(ExactGemm, IsExactWhenWindowsCancel) {
  Stream stream(10, "exact");
  for (const int window : {45, 51}) {
    const float unit = std::ldexp(1.0F, -window);
    for (const std::int64_t pairs : {8, 64, 512}) {
      Problem problem(stream, Kind::normal, 1, 20, 2 * pairs + 3);
      const std::int64_t k = problem.k;
      for (std::int64_t c = 0; c < pairs; ++c) {
        problem.x[at(2 * c)] = unit * (0.5F + 0x1p-24F);  // 1 unit and nearly half of one to take back
        problem.x[at(2 * c + 1)] = unit * -0.5F;          // 0 units and half of one to take away
      }
      problem.x[at(k - 3)] = unit;
      problem.x[at(k - 2)] = unit * -0x1p-24F * static_cast<float>(pairs);
      problem.x[at(k - 1)] = 0.75F;  // sets the window
      for (std::int64_t j = 0; j < problem.n; ++j) {
        float* w = &problem.w[at(j * k)];
        for (std::int64_t c = 0; c < pairs; ++c) {
          w[2 * c] = w[2 * c + 1] = 1.0F - 0x1p-24F * static_cast<float>(stream.integer(1, 1000));
        }
        w[k - 3] = unit * static_cast<float>(2 * stream.integer(0, 999) + 1);
        w[k - 2] = 1.0F - 0x1p-24F * 500.0F;
        w[k - 1] = 0.0F;
      }
      for (const std::string& kernel : exact_kernels()) {
        const ForcedKernel forced(kernel);
        ASSERT_EQ(bits(problem.run()), bits(problem.expected())) << kernel << ' ' << window << ' ' << pairs;
      }
    }
  }
}

TEST(ExactGemm, HasTheSameBitsUnderAnyOrderOfTheSum) {
  Stream stream(11, "exact");
  for (const Kind kind : kKinds) {
    for (int draw = 0; draw < 10; ++draw) {
      const Problem problem = Problem::draw(stream, kind);
      std::vector<std::int64_t> order = iota(problem.k);
      shuffle(stream, order);
      ASSERT_EQ(bits(problem.columns(order).run()), bits(problem.run()));
    }
  }
}

TEST(ExactGemm, AddsTheBiasBeforeTheOneRounding) {
  Stream stream(12, "exact");
  for (const Kind kind : kKinds) {
    for (int draw = 0; draw < 6; ++draw) {
      const Problem problem = Problem::draw(stream, kind);
      const Floats bias = oracle::values_of_kind(stream, kind, 1, problem.n);
      Floats y(at(problem.m * problem.n));
      exact_gemm(problem.x.data(), problem.k, problem.m, problem.weights(), y.data(), problem.n, bias);
      // One more column: x = 1, w = bias.
      Problem widened = problem;
      widened.k = problem.k + 1;
      for (std::int64_t i = problem.m; i > 0; --i) {
        widened.x.insert(widened.x.begin() + i * problem.k, 1.0F);
      }
      for (std::int64_t j = problem.n; j > 0; --j) {
        widened.w.insert(widened.w.begin() + j * problem.k, bias[at(j - 1)]);
      }
      ASSERT_EQ(bits(y), bits(widened.expected()));
    }
  }
}

TEST(ExactGemm, WritesNothingBesideItsOutputs) {
  Stream stream(13, "exact");
  const Problem problem(stream, Kind::normal, 3, 5, 9);
  Floats y(3 * 8, 42.0F);
  exact_gemm(problem.x.data(), 9, 3, problem.weights(), y.data(), 8);
  const Floats expected = problem.expected();
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(y[at(i * 8 + j)], j < 5 ? expected[at(i * 5 + j)] : 42.0F);
  }
  float untouched = 42.0F;
  exact_gemm(problem.x.data(), 9, 0, problem.weights(), &untouched, 5);
  exact_gemm(problem.x.data(), 9, 3, ExactWeights(), &untouched, 5);
  EXPECT_EQ(untouched, 42.0F);
}

TEST(ExactWeights, WidenSixteenBitTensorsExactly) {
  Stream stream(14, "exact");
  const Problem problem(stream, Kind::normal, 3, 19, 23);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor narrow = Tensor::from({problem.n, problem.k}, problem.w).to(dtype);
    Problem widened = problem;
    const Tensor wide = narrow.to(DType::f32);
    widened.w.assign(wide.f32().begin(), wide.f32().end());
    Floats y(at(problem.m * problem.n));
    const ExactWeights w(narrow);
    EXPECT_EQ(w.n(), problem.n);
    EXPECT_EQ(w.k(), problem.k);
    exact_gemm(problem.x.data(), problem.k, problem.m, w, y.data(), problem.n);
    EXPECT_EQ(bits(y), bits(widened.expected()));
  }
  EXPECT_THROW(ExactWeights(Tensor::zeros(DType::f32, {4})), std::invalid_argument);
  EXPECT_THROW(ExactWeights(Tensor::zeros(DType::i64, {2, 2})), std::invalid_argument);
}

TEST(ExactWeights, RunTheKernelInForceWhenTheyWerePacked) {
  for (const std::string& kernel : exact_kernels()) {
    const ExactWeights w = [&] {
      const ForcedKernel forced(kernel);
      return ExactWeights();
    }();
    EXPECT_EQ(w.kernel(), kernel);
  }
  for (const std::string& target : simd_targets()) {
    const oracle::ForcedTarget forced(target);
    if (target.find("AVX3") == std::string::npos) {
      EXPECT_STREQ(ExactWeights().kernel(), "pair") << target;
    }
  }
  EXPECT_EQ(ExactWeights().kernel(), exact_kernels().front());
}

TEST(RowTops, AreTheSmallestPowersOfTwoAboveARow) {
  Stream stream(15, "exact");
  for (const Kind kind : kKinds) {
    const Floats x = oracle::values_of_kind(stream, kind, 50, 7);
    const std::vector<std::int32_t> tops = row_tops(x.data(), 7, 50, 7);
    for (std::int64_t i = 0; i < 50; ++i) {
      double largest = 0.0;
      for (std::int64_t c = 0; c < 7; ++c) {
        const double size = std::fabs(static_cast<double>(x[at(i * 7 + c)]));
        if (std::isfinite(size)) largest = std::max(largest, size);
      }
      EXPECT_LT(largest, std::ldexp(1.0, tops[at(i)]));
      if (tops[at(i)] > -149) {
        EXPECT_GE(largest, std::ldexp(1.0, tops[at(i)] - 1));
      }
    }
  }
  const Floats zeros(4);
  EXPECT_EQ(row_tops(zeros.data(), 2, 2, 2), (std::vector<std::int32_t>{-149, -149}));
}

// A problem whose columns are dealt to ranks at random: any number of them each, also none.
struct Dealt {
  Dealt(Stream& stream, const Problem& problem, std::int64_t count) {
    std::vector<std::vector<std::int64_t>> owned(at(count));
    for (const std::int64_t c : iota(problem.k)) owned[at(stream.integer(0, count - 1))].push_back(c);
    for (auto& columns : owned) {
      shuffle(stream, columns);
      ranks.push_back(problem.columns(columns));
    }
  }

  /// The maximum over ranks of their own tops, of x or of w.
  std::vector<std::int32_t> agreed(const Floats Problem::*member, std::int64_t rows) const {
    std::vector<std::int32_t> tops(at(rows), -149);
    for (const Problem& rank : ranks) {
      const auto own = row_tops((rank.*member).data(), rank.k, rows, rank.k);
      for (std::size_t i = 0; i < tops.size(); ++i) tops[i] = std::max(tops[i], own[i]);
    }
    return tops;
  }

  /// Every rank on a kernel of its own.
  std::vector<ExactPartial> partials(Stream& stream, bool agree) const {
    const Problem& first = ranks.front();
    const auto x_tops = agree ? agreed(&Problem::x, first.m) : std::vector<std::int32_t>();
    const auto w_tops = agree ? agreed(&Problem::w, first.n) : std::vector<std::int32_t>();
    std::vector<ExactPartial> all;
    for (const Problem& rank : ranks) {
      const ForcedKernel forced(stream.pick(exact_kernels()));
      const ExactWeights w(rank.w.data(), rank.n, rank.k, rank.k, w_tops);
      all.push_back(exact_partial(rank.x.data(), rank.k, rank.m, w, x_tops));
    }
    return all;
  }

  std::vector<Problem> ranks;
};

Floats rounded(const ExactPartial& partial) {
  Floats y(at(partial.rows() * partial.columns()));
  partial.round(y.data(), partial.columns());
  return y;
}

// Merges two partials drawn at random until one is left; some travel as bytes.
ExactPartial merged_in_some_order(Stream& stream, std::vector<ExactPartial> partials) {
  while (partials.size() > 1) {
    shuffle(stream, partials);
    const ExactPartial last =
        stream.chance(1, 2) ? ExactPartial::from_bytes(partials.back().bytes()) : std::move(partials.back());
    partials.pop_back();
    partials.back().merge(last);
  }
  return partials.front();
}

TEST(ExactPartial, OfAnyPartitionMergesInAnyOrderToTheOracle) {
  Stream stream(16, "exact");
  for (const Kind kind : kKinds) {
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
      const Problem problem = Problem::draw(stream, kind);
      const auto expected = bits(problem.expected());
      const Dealt dealt(stream, problem, ranks);
      for (const bool agree : {false, true}) {
        const auto partials = dealt.partials(stream, agree);
        ASSERT_EQ(bits(rounded(merged_in_some_order(stream, partials))), expected)
            << ranks << " ranks, agreed " << agree << ", kind " << static_cast<int>(kind);
      }
    }
  }
}

// What ranks do with a sum all-reduce of int64 and an all-gather of bytes.
ExactPartial summed_by_words(Stream& stream, std::vector<ExactPartial> partials) {
  shuffle(stream, partials);
  std::vector<std::byte> gathered;
  for (const ExactPartial& partial : partials) {
    const auto rest = partial.rest_bytes();
    gathered.insert(gathered.end(), rest.begin(), rest.end());
  }
  ExactPartial sum = partials.front();
  for (std::size_t r = 1; r < partials.size(); ++r) {
    for (std::size_t i = 0; i < sum.words().size(); ++i) sum.words()[i] += partials[r].words()[i];
  }
  sum.set_rest(gathered);
  return sum;
}

TEST(ExactPartial, WithAgreedTopsMayBeSummedAsPlainIntegers) {
  Stream stream(17, "exact");
  for (const Kind kind : kKinds) {
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
      const Problem problem = Problem::draw(stream, kind);
      const Dealt dealt(stream, problem, ranks);
      ExactPartial sum = summed_by_words(stream, dealt.partials(stream, true));
      const auto expected = bits(problem.expected());
      ASSERT_EQ(bits(rounded(sum)), expected);
      ASSERT_EQ(bits(rounded(ExactPartial::from_bytes(sum.bytes()))), expected);
      // It is a partial like any other.
      const Problem more = Problem(stream, kind, problem.m, problem.n, 0);
      sum.merge(exact_partial(more.x.data(), 0, more.m, more.weights()));
      ASSERT_EQ(bits(rounded(sum)), expected);
    }
  }
}

TEST(ExactPartial, OfOrdinaryValuesWithAgreedTopsShipsNoSparsePart) {
  Stream stream(18, "exact");
  const Problem problem(stream, Kind::bf16, 16, 32, 128);
  for (const ExactPartial& partial : Dealt(stream, problem, 4).partials(stream, true)) {
    EXPECT_EQ(partial.rest_bytes().size(), 24U);
  }
}

TEST(ExactPartial, StaysSummableAfterAnyNumberOfMerges) {
  const Floats most(16384, std::numeric_limits<float>::max());
  const ExactWeights w(most.data(), 1, 16384, 16384);
  ExactPartial partial = exact_partial(most.data(), 16384, 1, w);
  LongAccumulator expected;
  for (int i = 0; i < 16384; ++i) expected.add_product(most[0], most[0]);
  for (int doubling = 0; doubling < 40; ++doubling) {
    partial.merge(partial);
    expected.merge(LongAccumulator(expected));
    ASSERT_LT(std::abs(partial.words()[0]), std::int64_t{1} << 54);
    ASSERT_GE(partial.words()[1], 0);
    ASSERT_LT(partial.words()[1], std::int64_t{1} << 52);
  }
  EXPECT_EQ(rounded(partial).front(), kInfinity);
  partial.add_product(0, 0, -1.0F, 3.0F);
  EXPECT_EQ(rounded(partial).front(), kInfinity);
}

TEST(ExactPartial, TakesTheBiasOfSeveralRanks) {
  Stream stream(19, "exact");
  for (const Kind kind : kKinds) {
    const Problem problem = Problem::draw(stream, kind);
    std::vector<ExactPartial> partials = Dealt(stream, problem, 3).partials(stream, true);
    std::vector<Floats> biases;
    for (ExactPartial& partial : partials) {
      biases.push_back(oracle::values_of_kind(stream, kind, 1, problem.n));
      partial.add_bias(biases.back());
    }
    Floats expected;
    for (std::int64_t i = 0; i < problem.m; ++i) {
      for (std::int64_t j = 0; j < problem.n; ++j) {
        oracle::ExactSum sum;
        for (const Floats& bias : biases) sum.add_product(bias[at(j)], 1.0F);
        for (std::int64_t c = 0; c < problem.k; ++c) {
          sum.add_product(problem.x[at(i * problem.k + c)], problem.w[at(j * problem.k + c)]);
        }
        expected.push_back(sum.round());
      }
    }
    ASSERT_EQ(bits(rounded(summed_by_words(stream, partials))), bits(expected));
    ASSERT_EQ(bits(rounded(merged_in_some_order(stream, partials))), bits(expected));
  }
}

TEST(ExactPartial, LosesNoBitOfABiasFarBelowItsProducts) {
  const Floats x = {1.0F, 0x1p-12F};
  const ExactWeights w(x.data(), 1, 2, 2);
  for (const float tiny : {0x1p-87F, 0x1p-90F, 0x1p-100F, 0x1p-149F}) {
    for (const float sign : {1.0F, -1.0F}) {
      ExactPartial partial = exact_partial(x.data(), 2, 1, w);  // 1 + 2^-24: a tie
      partial.add_bias(Floats{sign * tiny});
      EXPECT_EQ(rounded(partial).front(), sign > 0.0F ? 1.0F + 0x1p-23F : 1.0F) << tiny;
    }
  }
}

TEST(ExactPartial, ComesBackFromItsBytes) {
  Stream stream(20, "exact");
  for (const Kind kind : kKinds) {
    const Problem problem = Problem::draw(stream, kind);
    const ExactPartial partial = exact_partial(problem.x.data(), problem.k, problem.m, problem.weights());
    const ExactPartial back = ExactPartial::from_bytes(partial.bytes());
    EXPECT_EQ(back.bytes(), partial.bytes());
    EXPECT_EQ(bits(rounded(back)), bits(problem.expected()));
  }
  EXPECT_EQ(ExactPartial::from_bytes(ExactPartial().bytes()).rows(), 0);
}

// Whatever the bytes: a partial that can be used, or std::invalid_argument.
bool survives(std::span<const std::byte> bytes) {
  try {
    ExactPartial partial = ExactPartial::from_bytes(bytes);
    partial.merge(ExactPartial(partial));
    const Floats y = rounded(partial);
    const auto rest = partial.rest_bytes();
    partial.set_rest(rest);
    return y.size() == at(partial.rows() * partial.columns());
  } catch (const std::invalid_argument&) {
    return true;
  }
}

TEST(ExactPartial, RefusesBytesThatAreNone) {
  Stream stream(21, "exact");
  const Problem problem(stream, Kind::any_pattern, 3, 5, 400);
  const std::vector<std::byte> good = exact_partial(problem.x.data(), 400, 3, problem.weights()).bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(ExactPartial::from_bytes(std::span(good).first(size)), std::invalid_argument) << size;
  }
  std::vector<std::byte> unsummable = good;  // the first word, after header and exponents
  unsummable[24 + 4 * (3 + 5) + 7] = std::byte{0x7f};
  EXPECT_THROW(ExactPartial::from_bytes(unsummable), std::invalid_argument);
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(ExactPartial::from_bytes(longer), std::invalid_argument);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int change : {1, 0x80, 0xff}) {
      std::vector<std::byte> bad = good;
      bad[i] ^= static_cast<std::byte>(change);
      ASSERT_TRUE(survives(bad)) << i;
    }
  }
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<std::byte> noise(at(stream.integer(0, 200)));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(stream.next_u32());
    std::copy_n(good.begin(), std::min<std::size_t>(8, noise.size()), noise.begin());
    ASSERT_TRUE(survives(noise));
  }
}

TEST(ExactPartial, RefusesARankThatDidNotAgree) {
  Stream stream(22, "exact");
  const Problem problem(stream, Kind::normal, 2, 3, 8);
  const ExactWeights w = problem.weights();
  const std::vector<std::int32_t> tops = {20, 20};
  ExactPartial agreed = exact_partial(problem.x.data(), 8, 2, w, tops);
  const ExactPartial other = exact_partial(problem.x.data(), 8, 2, w);
  EXPECT_THROW(agreed.set_rest(other.rest_bytes()), std::invalid_argument);
  EXPECT_THROW(agreed.set_rest({}), std::invalid_argument);
  std::vector<std::byte> crowd;
  for (std::int64_t rank = 0; rank <= ExactPartial::kMaxRanks; ++rank) {
    const auto rest = agreed.rest_bytes();
    crowd.insert(crowd.end(), rest.begin(), rest.end());
  }
  EXPECT_THROW(agreed.set_rest(crowd), std::invalid_argument);
  agreed.set_rest(agreed.rest_bytes());
  EXPECT_EQ(bits(rounded(agreed)), bits(problem.expected()));
  EXPECT_NO_THROW(agreed.set_rest(std::span(crowd).first(crowd.size() - agreed.rest_bytes().size())));
}

TEST(ExactPartial, RefusesShapesAndTopsThatDoNotFit) {
  Stream stream(23, "exact");
  const Problem problem(stream, Kind::normal, 2, 3, 8);
  const ExactWeights w = problem.weights();
  ExactPartial partial = exact_partial(problem.x.data(), 8, 2, w);
  EXPECT_THROW(partial.merge(exact_partial(problem.x.data(), 8, 1, w)), std::invalid_argument);
  EXPECT_THROW(partial.merge(ExactPartial()), std::invalid_argument);
  EXPECT_THROW(partial.add_bias(Floats(2)), std::invalid_argument);
  EXPECT_THROW(partial.add_product(2, 0, 1.0F, 1.0F), std::out_of_range);
  EXPECT_THROW(partial.add_product(0, -1, 1.0F, 1.0F), std::out_of_range);
  const auto with_tops = [&](const std::vector<std::int32_t>& tops) {
    return exact_partial(problem.x.data(), 8, 2, w, tops);
  };
  EXPECT_THROW(with_tops({3}), std::invalid_argument);
  EXPECT_THROW(with_tops({3, 129}), std::invalid_argument);
  EXPECT_THROW(with_tops({-150, 3}), std::invalid_argument);
  EXPECT_THROW(ExactWeights(problem.w.data(), 3, 8, 8, std::vector<std::int32_t>{1}), std::invalid_argument);
  float y = 0.0F;
  EXPECT_THROW(exact_gemm(problem.x.data(), 8, 1, w, &y, 3, Floats(2)), std::invalid_argument);
  EXPECT_THROW(force_exact_kernel("abacus"), std::invalid_argument);
}

TEST(ExactPartial, HasTheSameBitsWithTopsAboveItsOwn) {
  Stream stream(24, "exact");
  for (const Kind kind : kKinds) {
    const Problem problem = Problem::draw(stream, kind);
    for (const std::int32_t top : {-149, 0, 30, 128}) {
      const std::vector<std::int32_t> x_tops(at(problem.m), top), w_tops(at(problem.n), top);
      const ExactWeights w(problem.w.data(), problem.n, problem.k, problem.k, w_tops);
      ASSERT_EQ(bits(rounded(exact_partial(problem.x.data(), problem.k, problem.m, w, x_tops))),
                bits(problem.expected()))
          << top;
    }
  }
}

void on_every_target(const std::function<void()>& check) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    const oracle::ForcedTarget forced(target);
    check();
  }
}

TEST(ExactSumOfSquares, EqualsTheOracle) {
  on_every_target([] {
    Stream stream(25, "exact");
    for (const Kind kind : kKinds) {
      for (const std::int64_t width : {0, 1, 7, 64, 513, 1030, 20000}) {
        const std::int64_t rows = width > 1000 ? 1 : 4;
        const Floats x = oracle::values_of_kind(stream, kind, rows, width);
        Floats sums(at(rows)), expected;
        exact_sum_of_squares(x.data(), rows, width, sums.data());
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto value = [&](std::int64_t c) { return x[at(i * width + c)]; };
          expected.push_back(oracle::exact_dot(width, value, value));
        }
        ASSERT_EQ(bits(sums), bits(expected)) << width << " kind " << static_cast<int>(kind);
      }
    }
  });
}

TEST(ExactSum, EqualsTheOracleInAnyOrderAndPartition) {
  on_every_target([] {
    Stream stream(26, "exact");
    for (const Kind kind : kKinds) {
      for (const std::int64_t count : {0, 1, 9, 300, 17000}) {
        Floats values = oracle::values_of_kind(stream, kind, 1, count);
        const float expected = oracle::exact_dot(
            count, [&](std::int64_t i) { return values[at(i)]; }, [](std::int64_t) { return 1.0F; });
        ASSERT_EQ(bits(Floats{exact_sum(values)}), bits(Floats{expected})) << count;
        shuffle(stream, values);
        const auto cut = at(stream.integer(0, count));
        LongAccumulator sum = exact_sum_partial(std::span(values).first(cut));
        sum.merge(exact_sum_partial(std::span(values).subspan(cut)));
        ASSERT_EQ(bits(Floats{sum.round()}), bits(Floats{expected})) << count;
      }
    }
  });
}

}  // namespace
}  // namespace shardcheck
