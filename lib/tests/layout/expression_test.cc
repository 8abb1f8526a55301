#include "../../src/layout/expression.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

std::int64_t value_of(std::string_view text) { return Expression::parse(text).evaluate(toy()); }

std::string refusal_of(std::string_view text) {
  try {
    return fmt::format("value {}", value_of(text));
  } catch (const InvalidLayout& error) {
    return error.what();
  }
}

TEST(Expression, ReadsTheGeometry) {
  EXPECT_EQ(value_of("d_model"), 256);
  EXPECT_EQ(value_of("n_layers"), 4);
  EXPECT_EQ(value_of("n_heads*head_dim"), 256);
  EXPECT_EQ(value_of("(n_heads+2*n_kv_heads)*head_dim"), 384);
  EXPECT_EQ(value_of("(vocab+63)/64*64"), 32000);
  EXPECT_EQ(value_of("2*ffn"), 1408);
}

TEST(Expression, HasTheUsualPrecedence) {
  EXPECT_EQ(value_of("2+3*4"), 14);
  EXPECT_EQ(value_of("(2+3)*4"), 20);
  EXPECT_EQ(value_of("10-4-3"), 3);
  EXPECT_EQ(value_of("100/7/2"), 7);
  EXPECT_EQ(value_of("17%10*2"), 14);
  EXPECT_EQ(value_of("-3+5"), 2);
  EXPECT_EQ(value_of("2*-3"), -6);
  EXPECT_EQ(value_of("-(2-5)"), 3);
  EXPECT_EQ(value_of("-7/2"), -3);
  EXPECT_EQ(value_of(" 1 +  2 "), 3);
}

/// A random expression as text and, independently, its value.
struct Grown {
  std::string text;
  std::int64_t value;
};

Grown grow(Stream& stream, int depth) {
  if (depth == 0 || stream.chance(1, 4)) {
    const std::int64_t value = stream.integer(0, 9);
    return {std::to_string(value), value};
  }
  const Grown left = grow(stream, depth - 1), right = grow(stream, depth - 1);
  const std::int64_t operation = stream.integer(0, right.value == 0 ? 2 : 4);
  const std::int64_t values[] = {left.value + right.value, left.value - right.value, left.value * right.value,
                                 right.value == 0 ? 0 : left.value / right.value,
                                 right.value == 0 ? 0 : left.value % right.value};
  return {fmt::format("({}{}{})", left.text, "+-*/%"[operation], right.text), values[operation]};
}

TEST(Expression, EvaluatesEveryParenthesisedTree) {
  Stream stream(1, "expression_test");
  for (int i = 0; i < 2000; ++i) {
    const Grown grown = grow(stream, 4);
    EXPECT_EQ(value_of(grown.text), grown.value) << grown.text;
  }
}

TEST(Expression, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(refusal_of(""), HasSubstr("missing operand at position 0"));
  EXPECT_THAT(refusal_of("2*"), HasSubstr("missing operand at position 2"));
  EXPECT_THAT(refusal_of("2 3"), HasSubstr("unexpected '3' at position 2"));
  EXPECT_THAT(refusal_of("(2"), HasSubstr("missing ')'"));
  EXPECT_THAT(refusal_of("2)"), HasSubstr("unexpected ')'"));
  EXPECT_THAT(refusal_of("2^3"), HasSubstr("unexpected '^'"));
  EXPECT_THAT(refusal_of("heads"), HasSubstr("unknown name 'heads' (known: d_model"));
  EXPECT_THAT(refusal_of("9223372036854775808"), HasSubstr("integer beyond 64 bits"));
}

TEST(Expression, ChecksItsArithmetic) {
  EXPECT_THAT(refusal_of("ffn/(n_heads-8)"), HasSubstr("division by zero"));
  EXPECT_THAT(refusal_of("ffn%0"), HasSubstr("division by zero"));
  EXPECT_THAT(refusal_of("9223372036854775807+1"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(refusal_of("9223372036854775807*2"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(refusal_of("-9223372036854775807-2"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(refusal_of("(-9223372036854775807-1)/-1"), HasSubstr("does not fit 64 bits"));
  EXPECT_EQ(value_of("-9223372036854775807-1"), INT64_MIN);
}

TEST(Expression, BoundsItsLengthAndDepth) {
  EXPECT_THAT(refusal_of(std::string(257, '1')), HasSubstr("257 characters"));
  EXPECT_THAT(refusal_of(std::string(1 << 20, '(')), HasSubstr("at most 256"));
  EXPECT_THAT(refusal_of(std::string(100, '(')), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(refusal_of(std::string(100, '-')), HasSubstr("nested deeper than 32"));
  std::string side_by_side = "(1)";
  for (int i = 1; i < 60; ++i) side_by_side += "+(1)";
  EXPECT_EQ(value_of(side_by_side), 60);
  EXPECT_EQ(value_of(std::string(32, '(') + "1" + std::string(32, ')')), 1);
}

}  // namespace
}  // namespace shardcheck
