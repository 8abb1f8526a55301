// Integer expressions over a geometry and a mesh, as layout tables write sizes: "n_heads*head_dim",
// "128*tp", "(vocab+63)/64*64". Operators + - * / % with the usual precedence, unary minus, parentheses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

class Expression {
 public:
  /// Names that may appear: the extents of a geometry under the names of their members, and the degree of
  /// each mesh axis under the axis's name.
  static std::vector<std::string> names();

  /// Throws InvalidLayout naming the position: unknown name or character, missing operand or parenthesis, an
  /// integer beyond 64 bits, more than 256 characters or 32 nested parentheses.
  static Expression parse(std::string_view text);
  static Expression constant(std::int64_t value);

  /// 64-bit value; division truncates towards zero. Throws InvalidLayout on overflow or division by zero.
  std::int64_t evaluate(const Geometry& geometry, const Mesh& mesh = {}) const;

  const std::string& text() const noexcept { return text_; }

 private:
  friend class ExpressionParser;
  /// One step of a stack machine.
  struct Step {
    enum class Kind : std::uint8_t { constant, field, add, subtract, multiply, divide, remainder } kind;
    std::int64_t value = 0;  // the constant, or the index of the field
  };

  std::int64_t apply(Step::Kind kind, std::int64_t left, std::int64_t right) const;

  std::string text_;
  std::vector<Step> steps_;
};

}  // namespace shardcheck
