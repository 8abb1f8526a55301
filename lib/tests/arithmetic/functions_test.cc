#include "shardcheck/arithmetic/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kMinNormal = std::numeric_limits<float>::min();
constexpr float kMinSubnormal = std::numeric_limits<float>::denorm_min();

// Distance in units of the last f32 place of the true value; subnormal results have the spacing 2^-149.
double ulp_error(float got, double truth) {
  if (std::isnan(truth)) return std::isnan(got) ? 0.0 : HUGE_VAL;
  const auto nearest = static_cast<float>(truth);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0.0 : HUGE_VAL;
  int exponent = 0;
  std::frexp(truth, &exponent);
  const double place = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(got) - truth) / place;
}

// Both ends and 128 random values of every binade, subnormals included, in both signs.
std::vector<float> every_binade() {
  std::mt19937 random(1);
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    const std::uint32_t base = exponent << 23;
    for (int i = 0; i < 130; ++i) {
      const std::uint32_t fraction = i == 0 ? 0U : i == 1 ? 0x7fffffU : random() & 0x7fffffU;
      values.push_back(std::bit_cast<float>(base | fraction));
      values.push_back(-values.back());
    }
  }
  return values;
}

std::vector<float> evenly(float low, float high, int count) {
  std::vector<float> values;
  for (int i = 0; i <= count; ++i)
    values.push_back(static_cast<float>(static_cast<double>(low) +
                                        (static_cast<double>(high) - static_cast<double>(low)) * i / count));
  return values;
}

std::vector<float> concatenate(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

using SpanForm = void (*)(std::span<const float>, std::span<float>);
using ScalarForm = float (*)(float) noexcept;

template <typename Truth>
void expect_ulp_below(double limit, SpanForm function, Truth truth, const std::vector<float>& inputs) {
  std::vector<float> results(inputs.size());
  function(inputs, results);
  double worst = 0;
  float worst_input = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double exact = truth(static_cast<double>(inputs[i]));
    const double error = ulp_error(results[i], exact);
    if (error > worst) {
      worst = error;
      worst_input = inputs[i];
    }
  }
  EXPECT_LT(worst, limit) << "at " << worst_input;
  EXPECT_GT(worst, 0.4);  // a rounded function cannot do much better than half: the measure is alive
}

bool is_quiet_nan(float x) { return std::isnan(x) && (std::bit_cast<std::uint32_t>(x) & 0x00400000U) != 0; }

TEST(Exp, IsWithinOneUlp) {
  const auto truth = [](double x) { return std::exp(x); };
  expect_ulp_below(1.0, exp_f32, truth, concatenate(every_binade(), evenly(-104.5f, 89.5f, 1 << 20)));
  expect_ulp_below(1.0, exp_f32, truth, evenly(-1.0f, 1.0f, 1 << 20));
}

TEST(Exp, HasItsEdges) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(exp_f32(kMax), kInfinity);
  EXPECT_TRUE(std::isfinite(exp_f32(0x1.62e42ep+6f)));  // the last argument below ln(FLT_MAX)
  EXPECT_EQ(exp_f32(0x1.62e430p+6f), kInfinity);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(-kInfinity)), 0U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(-kMax)), 0U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(-104.0f)), 0U);
  EXPECT_EQ(exp_f32(-103.0f), kMinSubnormal);
}

TEST(Log, IsWithinOneUlp) {
  std::vector<float> positive = every_binade();
  std::erase_if(positive, [](float x) { return !(x > 0.0f); });
  const auto truth = [](double x) { return std::log(x); };
  expect_ulp_below(1.0, log_f32, truth, positive);
  expect_ulp_below(1.0, log_f32, truth, evenly(0.25f, 4.0f, 1 << 20));
  expect_ulp_below(1.0, log_f32, truth, evenly(0.999f, 1.001f, 1 << 16));
}

TEST(Log, HasItsEdges) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(log_f32(1.0f)), 0U);
  EXPECT_EQ(log_f32(0.0f), -kInfinity);
  EXPECT_EQ(log_f32(-0.0f), -kInfinity);
  EXPECT_EQ(log_f32(kInfinity), kInfinity);
  for (const float x : {-1.0f, -kMinSubnormal, -kMax, -kInfinity}) EXPECT_TRUE(std::isnan(log_f32(x))) << x;
}

// The two f32 on either side of every multiple of pi/2 up to 2^20, and the nearest one.
std::vector<float> near_multiples_of_half_pi() {
  std::vector<float> values;
  for (int k = 1; k * (std::numbers::pi / 2) <= 0x1p20; ++k) {
    const auto nearest = static_cast<float>(k * (std::numbers::pi / 2));
    values.push_back(nearest);
    values.push_back(std::nextafter(nearest, 0.0f));
    values.push_back(std::nextafter(nearest, kInfinity));
  }
  return values;
}

TEST(SinCos, AreWithinOneUlpOverEveryFiniteArgument) {
  const auto sine = [](double x) { return std::sin(x); };
  const auto cosine = [](double x) { return std::cos(x); };
  for (const auto& inputs :
       {every_binade(), evenly(-10.0f, 10.0f, 1 << 19), evenly(-0x1p20f, 0x1p20f, 1 << 19)}) {
    expect_ulp_below(1.0, sin_f32, sine, inputs);
    expect_ulp_below(1.0, cos_f32, cosine, inputs);
  }
}

TEST(SinCos, AreWithinOneUlpNextToTheirZeros) {
  const std::vector<float> inputs = near_multiples_of_half_pi();
  ASSERT_GT(inputs.size(), 2000000U);
  expect_ulp_below(
      1.0, sin_f32, [](double x) { return std::sin(x); }, inputs);
  expect_ulp_below(
      1.0, cos_f32, [](double x) { return std::cos(x); }, inputs);
}

TEST(SinCos, HaveTheirEdges) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sin_f32(0.0f)), 0U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sin_f32(-0.0f)), 0x80000000U);
  EXPECT_EQ(cos_f32(0.0f), 1.0f);
  EXPECT_EQ(sin_f32(kMinSubnormal), kMinSubnormal);
  for (const float x : {kInfinity, -kInfinity}) {
    EXPECT_TRUE(std::isnan(sin_f32(x)));
    EXPECT_TRUE(std::isnan(cos_f32(x)));
  }
}

TEST(SinCos, SineIsOddCosineEvenAndBothBounded) {
  for (const float x : every_binade()) {
    ASSERT_EQ(sin_f32(-x), -sin_f32(x)) << x;
    ASSERT_EQ(cos_f32(-x), cos_f32(x)) << x;
    ASSERT_LE(std::abs(sin_f32(x)), 1.0f) << x;
    ASSERT_LE(std::abs(cos_f32(x)), 1.0f) << x;
  }
}

TEST(Sigmoid, IsWithinThreeUlp) {
  for (const float x : concatenate(every_binade(), evenly(-87.0f, 30.0f, 1 << 17))) {
    const double truth = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    if (truth < static_cast<double>(kMinNormal)) continue;
    ASSERT_LT(ulp_error(sigmoid_f32(x), truth), 3.0) << x;
  }
}

TEST(Sigmoid, HasItsEdges) {
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(kInfinity), 1.0f);
  EXPECT_EQ(sigmoid_f32(kMax), 1.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sigmoid_f32(-kInfinity)), 0U);
}

TEST(Silu, IsWithinFourUlp) {
  std::vector<float> inputs = concatenate(every_binade(), evenly(-87.0f, 30.0f, 1 << 20));
  std::erase_if(inputs, [](float x) { return x < -87.0f || std::abs(x) < 2 * kMinNormal; });
  expect_ulp_below(
      4.0, silu_f32, [](double x) { return x / (1.0 + std::exp(-x)); }, inputs);
}

TEST(Silu, VanishesSmoothlyBelowTheRangeOfExp) {
  for (const float x : evenly(-110.0f, -87.0f, 1 << 14)) {
    const double truth = static_cast<double>(x) / (1.0 + std::exp(-static_cast<double>(x)));
    ASSERT_NEAR(silu_f32(x), truth, std::abs(static_cast<double>(x)) * 0x1p-149 + std::abs(truth) * 0x1p-22)
        << x;
  }
}

TEST(Silu, HasItsEdges) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(silu_f32(-kInfinity)), 0x80000000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(silu_f32(-kMax)), 0x80000000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(silu_f32(-0.0f)), 0x80000000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(silu_f32(0.0f)), 0U);
  EXPECT_EQ(silu_f32(kInfinity), kInfinity);
  EXPECT_EQ(silu_f32(kMax), kMax);
  EXPECT_EQ(silu_f32(100.0f), 100.0f);
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_tanh(double x) {
  const double w = 2.0 * std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x < 0.0 ? x * std::exp(w) / (1.0 + std::exp(w)) : x / (1.0 + std::exp(-w));
}

// Where the function is normal.
std::vector<float> gelu_inputs(float low) {
  std::vector<float> inputs = concatenate(every_binade(), evenly(low, 30.0f, 1 << 20));
  std::erase_if(inputs, [&](float x) { return x < low || std::abs(x) < 4 * kMinNormal; });
  return inputs;
}

TEST(Gelu, IsWithinFourUlpAndFiveFarBelowZero) {
  expect_ulp_below(4.0, gelu_f32, gelu, gelu_inputs(-5.0f));
  expect_ulp_below(5.0, gelu_f32, gelu, gelu_inputs(-13.0f));
  expect_ulp_below(4.0, gelu_f32, gelu, evenly(-1.0f, 1.0f, 1 << 20));
}

TEST(GeluTanh, IsWithinFourUlp) {
  expect_ulp_below(4.0, gelu_tanh_f32, gelu_tanh, gelu_inputs(-10.0f));
  expect_ulp_below(4.0, gelu_tanh_f32, gelu_tanh, evenly(-1.0f, 1.0f, 1 << 20));
}

TEST(Gelu, VanishesSmoothlyBelowItsNormalRange) {
  for (const float x : evenly(-25.0f, -9.0f, 1 << 14)) {
    const auto wide = static_cast<double>(x);
    ASSERT_NEAR(gelu_f32(x), gelu(wide), 0x1p-145 + std::abs(gelu(wide)) * 0x1p-21) << x;
    ASSERT_NEAR(gelu_tanh_f32(x), gelu_tanh(wide), 0x1p-145 + std::abs(gelu_tanh(wide)) * 0x1p-21) << x;
  }
}

TEST(Gelu, HasItsEdges) {
  for (const ScalarForm form : {ScalarForm{gelu_f32}, ScalarForm{gelu_tanh_f32}}) {
    for (const float x : {-kInfinity, -kMax, -20.0f, -0.0f}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(form(x)), 0x80000000U) << x;
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(form(0.0f)), 0U);
    EXPECT_EQ(form(kInfinity), kInfinity);
    EXPECT_EQ(form(kMax), kMax);
    EXPECT_EQ(form(100.0f), 100.0f);
  }
}

TEST(Rsqrt, IsWithinTwoRoundings) {
  for (const float x : every_binade()) {
    if (!(x > 0.0f)) continue;
    ASSERT_LT(ulp_error(rsqrt_f32(x), 1.0 / std::sqrt(static_cast<double>(x))), 1.5) << x;
  }
  EXPECT_EQ(rsqrt_f32(4.0f), 0.5f);
  EXPECT_EQ(rsqrt_f32(0.0f), kInfinity);
  EXPECT_EQ(rsqrt_f32(-0.0f), -kInfinity);
  EXPECT_EQ(rsqrt_f32(kInfinity), 0.0f);
  for (const float x : {-1.0f, -kInfinity}) EXPECT_TRUE(std::isnan(rsqrt_f32(x)));
}

TEST(Pow, RoundsOnce) {
  std::mt19937 random(1);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (static_cast<double>(random()) * 0x1p-32);
  };
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(std::exp2(uniform(-149.0, 128.0)));
    const double y = uniform(-3.0, 3.0);
    if (x == 0.0f) continue;
    ASSERT_LT(ulp_error(pow_f32(x, y), std::pow(static_cast<double>(x), y)), 0.501) << x << " " << y;
  }
}

TEST(Pow, GivesTheRopeFrequencies) {
  for (const float theta : {1e4f, 5e5f, 1e6f}) {
    EXPECT_EQ(pow_f32(theta, 0.0), 1.0f);
    for (const int head_dim : {8, 64, 128})
      for (int i = 0; i < head_dim; i += 2)
        ASSERT_EQ(
            pow_f32(theta, -static_cast<double>(i) / head_dim),
            static_cast<float>(std::pow(static_cast<double>(theta), -static_cast<double>(i) / head_dim)));
  }
}

TEST(Pow, HasItsEdges) {
  EXPECT_EQ(pow_f32(2.0f, 127.0), 0x1p127f);
  EXPECT_EQ(pow_f32(2.0f, 128.0), kInfinity);
  EXPECT_EQ(pow_f32(2.0f, -149.0), kMinSubnormal);
  EXPECT_EQ(pow_f32(2.0f, 1e300), kInfinity);
  EXPECT_EQ(pow_f32(2.0f, -1e300), 0.0f);
  EXPECT_EQ(pow_f32(1.0f, 1e300), 1.0f);
  for (const float x : {0.0f, -1.0f, kInfinity, std::nanf("")}) EXPECT_TRUE(std::isnan(pow_f32(x, 2.0))) << x;
  EXPECT_TRUE(std::isnan(pow_f32(2.0f, std::nan(""))));
}

struct Forms {
  const char* name;
  SpanForm span;
  ScalarForm scalar;

  friend std::ostream& operator<<(std::ostream& out, const Forms& forms) { return out << forms.name; }
};

constexpr Forms kForms[] = {{"exp", exp_f32, exp_f32},
                            {"log", log_f32, log_f32},
                            {"sin", sin_f32, sin_f32},
                            {"cos", cos_f32, cos_f32},
                            {"silu", silu_f32, silu_f32},
                            {"gelu", gelu_f32, gelu_f32},
                            {"gelu_tanh", gelu_tanh_f32, gelu_tanh_f32}};

class Elementwise : public testing::TestWithParam<Forms> {
 protected:
  void TearDown() override { force_simd_target(""); }
};

// A prime, so that the low bits vary. Unoptimised code takes a microsecond per value, and sanitizers look for
// other things than bits: they get a sixteenth of the million.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kStride = 4093;
#else
constexpr std::uint64_t kStride = 65521;
#endif

// Evenly spaced bit patterns: every exponent, both signs, subnormals, infinities and NaNs of every kind.
std::vector<float> every_kind_of_pattern() {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               kInfinity,
                               -kInfinity,
                               kMinSubnormal,
                               -kMinSubnormal,
                               kMinNormal,
                               kMax,
                               -kMax,
                               0x1p20f,
                               std::nextafter(0x1p20f, kInfinity)};
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStride)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return values;
}

TEST_P(Elementwise, EverySimdTargetGivesTheBitsOfTheScalarForm) {
  const std::vector<float> inputs = every_kind_of_pattern();
  const std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  force_simd_target(targets.back());  // the plainest
  std::vector<std::uint32_t> expected(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    expected[i] = std::bit_cast<std::uint32_t>(GetParam().scalar(inputs[i]));
  std::vector<float> results(inputs.size());
  for (const std::string& target : targets) {
    force_simd_target(target);
    GetParam().span(inputs, results);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(results[i]), expected[i])
          << GetParam().name << "(" << inputs[i] << ") on " << target;
      if (i % 64 != 0) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(GetParam().scalar(inputs[i])), expected[i]) << target;
    }
  }
}

TEST_P(Elementwise, NansStayThatNanMadeQuiet) {
  for (const std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fc00000U, 0xffc12345U, 0x7fbfffffU}) {
    const float result = GetParam().scalar(std::bit_cast<float>(bits));
    EXPECT_TRUE(is_quiet_nan(result));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(result), bits | 0x00400000U);
  }
}

TEST_P(Elementwise, EveryLengthIsTheScalarFormAndStaysInItsSpan) {
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    for (std::size_t size = 0; size < 40; ++size) {
      std::vector<float> values(size + 1, 1234.5f);
      for (std::size_t i = 0; i < size; ++i) values[i] = 0.37f * static_cast<float>(i + 1);
      const std::vector<float> inputs = values;
      const std::span<float> in_place = std::span(values).first(size);
      GetParam().span(in_place, in_place);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(values[i], GetParam().scalar(inputs[i])) << target;
      ASSERT_EQ(values.back(), 1234.5f) << target << " " << size;
    }
  }
}

TEST_P(Elementwise, SpansOfDifferentLengthAreRefused) {
  std::vector<float> in(3);
  std::vector<float> out(2);
  EXPECT_THROW(GetParam().span(in, out), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Functions, Elementwise, testing::ValuesIn(kForms),
                         [](const auto& forms) { return std::string(forms.param.name); });

TEST(Nan, StaysThatNanInTheScalarFunctions) {
  const auto nan = std::bit_cast<float>(0xff812345U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sigmoid_f32(nan)), 0xffc12345U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(rsqrt_f32(nan)), 0xffc12345U);
}

}  // namespace
}  // namespace shardcheck
