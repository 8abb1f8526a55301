#include "expression.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

namespace shardcheck {
namespace {

constexpr std::size_t kMaxLength = 256;
constexpr int kMaxDepth = 32;

struct Field {
  std::string_view name;
  std::int64_t Geometry::*member = nullptr;  // null: the degree of an axis
  Axis axis = Axis::tp;

  std::int64_t of(const Geometry& geometry, const Mesh& mesh) const {
    return member != nullptr ? geometry.*member : mesh.degree(axis);
  }
};
constexpr std::array kFields = {
    Field{"d_model", &Geometry::d_model},
    Field{"n_layers", &Geometry::n_layers},
    Field{"n_heads", &Geometry::n_heads},
    Field{"n_kv_heads", &Geometry::n_kv_heads},
    Field{"head_dim", &Geometry::head_dim},
    Field{"ffn", &Geometry::ffn},
    Field{"vocab", &Geometry::vocab},
    Field{"positions", &Geometry::positions},
    Field{"n_experts", &Geometry::n_experts},
    Field{"expert_ffn", &Geometry::expert_ffn},
    Field{"shared_ffn", &Geometry::shared_ffn},
    Field{"q_lora", &Geometry::q_lora},
    Field{"kv_lora", &Geometry::kv_lora},
    Field{"nope_dim", &Geometry::nope_dim},
    Field{"rope_dim", &Geometry::rope_dim},
    Field{"v_dim", &Geometry::v_dim},
    Field{"tp", nullptr, Axis::tp},
    Field{"ep", nullptr, Axis::ep},
    Field{"etp", nullptr, Axis::etp},
    Field{"pp", nullptr, Axis::pp},
    Field{"dp", nullptr, Axis::dp},
    Field{"cp", nullptr, Axis::cp},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) { return (c >= 'a' && c <= 'z') || c == '_' || is_digit(c); }

}  // namespace

/// Recursive descent; the recursion is bounded by kMaxDepth.
class ExpressionParser {
 public:
  explicit ExpressionParser(Expression& out) : out_(out), text_(out.text_) {}

  void run() {
    if (text_.size() > kMaxLength) {
      throw InvalidLayout(
          fmt::format("expression of {} characters: at most {} are allowed", text_.size(), kMaxLength));
    }
    sum();
    if (peek() != '\0') fail(fmt::format("unexpected '{}'", peek()));
  }

 private:
  using Kind = Expression::Step::Kind;

  [[noreturn]] void fail(const std::string& why) const {
    throw InvalidLayout(fmt::format("expression '{}': {} at position {}", text_, why, at_));
  }

  /// Next character that is no space, '\0' at the end.
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void emit(Kind kind, std::int64_t value = 0) { out_.steps_.push_back({kind, value}); }

  void sum() {
    product();
    for (char c = peek(); c == '+' || c == '-'; c = peek()) {
      ++at_;
      product();
      emit(c == '+' ? Kind::add : Kind::subtract);
    }
  }

  void product() {
    factor();
    for (char c = peek(); c == '*' || c == '/' || c == '%'; c = peek()) {
      ++at_;
      factor();
      emit(c == '*' ? Kind::multiply : c == '/' ? Kind::divide : Kind::remainder);
    }
  }

  void factor() {
    const char c = peek();
    if (is_digit(c)) return integer();
    if (is_name_character(c)) return field();
    if (c != '-' && c != '(') fail(c == '\0' ? "missing operand" : fmt::format("unexpected '{}'", c));
    if (++depth_ > kMaxDepth) fail(fmt::format("nested deeper than {}", kMaxDepth));
    ++at_;
    if (c == '-') {
      emit(Kind::constant, 0);
      factor();
      emit(Kind::subtract);
    } else {
      sum();
      if (peek() != ')') fail("missing ')'");
      ++at_;
    }
    --depth_;
  }

  void integer() {
    std::int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("integer beyond 64 bits");
    at_ += static_cast<std::size_t>(end - begin);
    emit(Kind::constant, value);
  }

  void field() {
    std::size_t end = at_;
    while (end < text_.size() && is_name_character(text_[end])) ++end;
    const std::string_view name = text_.substr(at_, end - at_);
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (kFields[i].name == name) {
        at_ = end;
        return emit(Kind::field, static_cast<std::int64_t>(i));
      }
    }
    fail(fmt::format("unknown name '{}' (known: {})", name, fmt::join(Expression::names(), " ")));
  }

  Expression& out_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

std::vector<std::string> Expression::names() {
  std::vector<std::string> names;
  for (const Field& field : kFields) names.emplace_back(field.name);
  return names;
}

Expression Expression::parse(std::string_view text) {
  Expression expression;
  expression.text_ = text;
  ExpressionParser(expression).run();
  return expression;
}

Expression Expression::constant(std::int64_t value) {
  Expression expression;
  expression.text_ = std::to_string(value);
  expression.steps_.push_back({Step::Kind::constant, value});
  return expression;
}

std::int64_t Expression::apply(Step::Kind kind, std::int64_t left, std::int64_t right) const {
  using Kind = Step::Kind;
  const bool divides = kind == Kind::divide || kind == Kind::remainder;
  if (divides && right == 0) throw InvalidLayout(fmt::format("expression '{}': division by zero", text_));
  std::int64_t value = 0;
  bool overflow = false;
  if (divides) {
    overflow = left == std::numeric_limits<std::int64_t>::min() && right == -1;
    if (!overflow) value = kind == Kind::divide ? left / right : left % right;
  } else if (kind == Kind::add) {
    overflow = __builtin_add_overflow(left, right, &value);
  } else if (kind == Kind::subtract) {
    overflow = __builtin_sub_overflow(left, right, &value);
  } else {
    overflow = __builtin_mul_overflow(left, right, &value);
  }
  if (overflow) throw InvalidLayout(fmt::format("expression '{}': value does not fit 64 bits", text_));
  return value;
}

std::int64_t Expression::evaluate(const Geometry& geometry, const Mesh& mesh) const {
  std::vector<std::int64_t> stack;
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::constant) {
      stack.push_back(step.value);
    } else if (step.kind == Step::Kind::field) {
      stack.push_back(kFields[static_cast<std::size_t>(step.value)].of(geometry, mesh));
    } else {
      const std::int64_t right = stack.back();
      stack.pop_back();
      stack.back() = apply(step.kind, stack.back(), right);
    }
  }
  return stack.back();
}

}  // namespace shardcheck
