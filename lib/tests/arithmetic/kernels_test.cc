#include "shardcheck/arithmetic/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "scalar_oracle.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

using oracle::bits;
using oracle::on_every_target;
using Floats = std::vector<float>;

constexpr TreeShape kShapes[] = {TreeShape::halving, TreeShape::linear};

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

TEST(SumOfSquares, EqualsTheScalarDefinition) {
  on_every_target([] {
    Stream stream(1, "sum_of_squares");
    for (int draw = 0; draw < 20; ++draw) {
      const std::int64_t rows = stream.integer(1, 40), width = stream.integer(1, 150);
      const std::int64_t leaf = stream.integer(0, width + 3);
      const Floats x = oracle::random_values(stream, rows * width);
      for (const TreeShape shape : kShapes) {
        Floats actual(at(rows)), expected;
        sum_of_squares(x.data(), rows, width, shape, leaf, actual.data());
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto value = [&](std::int64_t j) { return x[at(i * width + j)]; };
          expected.push_back(oracle::dot(shape, width, leaf, value, value));
        }
        ASSERT_EQ(bits(actual), bits(expected)) << rows << 'x' << width << " leaf " << leaf;
      }
    }
  });
}

TEST(SumOfSquares, OfNoColumnsIsZeroAndANegativeLeafIsRefused) {
  const float x = 1.0F;
  Floats sums(2, 3.0F);
  sum_of_squares(&x, 2, 0, TreeShape::halving, 4, sums.data());
  EXPECT_EQ(sums, Floats(2, 0.0F));
  EXPECT_THROW(sum_of_squares(&x, 1, 1, TreeShape::halving, -1, sums.data()), std::invalid_argument);
}

TEST(RmsScale, MultipliesByTheScaleThenByTheWeightAlsoInPlace) {
  Stream stream(2, "rms_scale");
  const std::int64_t rows = 3, width = 37;
  const Floats x = oracle::random_values(stream, rows * width), weight = oracle::random_values(stream, width);
  const Floats sums = {10.0F, 37.5F, 1e-3F};
  Floats expected;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float scale = 1.0F / std::sqrt(sums[at(i)] / 37.0F + 1e-6F);
    for (std::int64_t j = 0; j < width; ++j) {
      const float scaled = x[at(i * width + j)] * scale;
      expected.push_back(scaled * weight[at(j)]);
    }
  }
  Floats y(x.size()), in_place = x;
  rms_scale(x.data(), rows, width, sums.data(), 37.0F, 1e-6F, weight.data(), y.data());
  rms_scale(in_place.data(), rows, width, sums.data(), 37.0F, 1e-6F, weight.data(), in_place.data());
  EXPECT_EQ(bits(y), bits(expected));
  EXPECT_EQ(bits(in_place), bits(expected));
}

TEST(RopeTables, HoldCosineAndSineOfOnceRoundedAngles) {
  const std::int64_t first = 5, positions = 9, head_dim = 12, half = head_dim / 2;
  Floats cosine(at(positions * half)), sine(cosine.size());
  rope_tables(first, positions, head_dim, 10000.0, cosine.data(), sine.data());
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t j = 0; j < half; ++j) {
      const double power = std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
      const float angle = static_cast<float>(first + p) * static_cast<float>(power);
      EXPECT_EQ(cosine[at(p * half + j)], cos_f32(angle)) << p << ' ' << j;
      EXPECT_EQ(sine[at(p * half + j)], sin_f32(angle)) << p << ' ' << j;
    }
  }
}

TEST(RopeTables, StartAnywhere) {
  Floats cosine(30), sine(30), later_cosine(9), later_sine(9);
  rope_tables(0, 10, 6, 500.0, cosine.data(), sine.data());
  rope_tables(7, 3, 6, 500.0, later_cosine.data(), later_sine.data());
  EXPECT_EQ(bits(later_cosine), bits(std::span(cosine).last(9)));
  EXPECT_EQ(bits(later_sine), bits(std::span(sine).last(9)));
}

// Rows of `heads` heads with a gap behind them, and a table of angles.
struct RopeProblem {
  RopeProblem(Stream& stream, std::int64_t head_dim_) : head_dim(head_dim_) {
    stride = heads * head_dim + 3;
    x = oracle::random_values(stream, rows * stride);
    cosine = oracle::random_values(stream, table_rows * head_dim / 2);
    sine = oracle::random_values(stream, table_rows * head_dim / 2);
    for (std::int64_t i = 0; i < rows; ++i) {
      position.push_back(static_cast<std::int32_t>(stream.integer(0, table_rows - 1)));
    }
  }

  Floats rotated(bool half_split) const {
    Floats y = x;
    apply_rope(y.data(), rows, stride, heads, head_dim, position.data(), cosine.data(), sine.data(),
               half_split);
    return y;
  }

  Floats expected(bool half_split) const {
    Floats y = x;
    const std::int64_t half = head_dim / 2;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t pair = 0; pair < heads * half; ++pair) {
        const std::int64_t head = i * stride + pair / half * head_dim, j = pair % half;
        float& a = y[at(head + (half_split ? j : 2 * j))];
        float& b = y[at(head + (half_split ? j + half : 2 * j + 1))];
        const float c = cosine[at(position[at(i)] * half + j)], s = sine[at(position[at(i)] * half + j)];
        const float old_a = a;
        a = std::fma(a, c, -(b * s));
        b = std::fma(b, c, old_a * s);
      }
    }
    return y;
  }

  std::int64_t rows = 5, heads = 3, head_dim, stride, table_rows = 11;
  Floats x, cosine, sine;
  std::vector<std::int32_t> position;
};

TEST(ApplyRope, EqualsTheScalarDefinitionForBothPairings) {
  on_every_target([] {
    Stream stream(3, "apply_rope");
    for (const std::int64_t head_dim : {2, 6, 16, 32, 34, 128}) {
      const RopeProblem problem(stream, head_dim);
      for (const bool half_split : {true, false}) {
        ASSERT_EQ(bits(problem.rotated(half_split)), bits(problem.expected(half_split))) << head_dim;
      }
    }
  });
}

TEST(SiluMultiply, IsElementwiseWhereverTheResultGoes) {
  Stream stream(12, "silu_multiply");
  const Floats gate = oracle::random_values(stream, 1300), up = oracle::random_values(stream, 1300);
  Floats expected, out(1300), over_gate = gate, over_up = up;
  for (std::size_t i = 0; i < gate.size(); ++i) expected.push_back(silu_f32(gate[i]) * up[i]);
  silu_multiply(gate, up, out);
  silu_multiply(over_gate, up, over_gate);
  silu_multiply(gate, over_up, over_up);
  EXPECT_EQ(bits(out), bits(expected));
  EXPECT_EQ(bits(over_gate), bits(expected));
  EXPECT_EQ(bits(over_up), bits(expected));
  EXPECT_THROW(silu_multiply(gate, std::span(up).first(3), out), std::invalid_argument);
}

TEST(Activate, IsTheActivationOfEveryElement) {
  Stream stream(13, "activate");
  const Floats x = oracle::random_values(stream, 1300), up = oracle::random_values(stream, 1300);
  const std::pair<Activation, float (*)(float) noexcept> cases[] = {
      {Activation::silu, silu_f32}, {Activation::gelu_tanh, gelu_tanh_f32}, {Activation::gelu, gelu_f32}};
  for (const auto& [activation, function] : cases) {
    Floats expected, products, out(1300), in_place = x;
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(function(x[i]));
    for (std::size_t i = 0; i < x.size(); ++i) products.push_back(expected[i] * up[i]);
    activate(activation, x, out);
    activate(activation, in_place, in_place);
    EXPECT_EQ(bits(out), bits(expected)) << to_string(activation);
    EXPECT_EQ(bits(in_place), bits(expected)) << to_string(activation);
    activate_multiply(activation, x, up, out);
    EXPECT_EQ(bits(out), bits(products)) << to_string(activation);
    EXPECT_THROW(activate(activation, x, std::span(out).first(3)), std::invalid_argument);
    EXPECT_THROW(activate_multiply(activation, x, up, std::span(out).first(3)), std::invalid_argument);
  }
}

TEST(AddInPlace, AddsElementByElement) {
  Floats x = {1.0F, 2.0F, -0.0F};
  add_in_place(x, Floats{0.5F, -2.0F, -0.0F});
  EXPECT_EQ(bits(x), bits(Floats{1.5F, 0.0F, -0.0F}));
  EXPECT_THROW(add_in_place(x, Floats{1.0F}), std::invalid_argument);
}

TEST(AddBias, AddsToEveryRowAndLeavesTheGapAlone) {
  Floats x = {1.0F, 2.0F, 9.0F, 3.0F, 4.0F, 9.0F};
  const Floats bias = {10.0F, 20.0F};
  add_bias(x.data(), 2, 2, 3, bias.data());
  EXPECT_EQ(x, (Floats{11.0F, 22.0F, 9.0F, 13.0F, 24.0F, 9.0F}));
}

}  // namespace
}  // namespace shardcheck
