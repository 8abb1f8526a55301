// The placement of a table's rule: checked once when the table is parsed, evaluated for every geometry.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "expression.h"
#include "json_field.h"
#include "shardcheck/layout/placement.h"

namespace shardcheck {

/// An integer, or the text of an expression.
Expression parse_size(const JsonField& json);

/// The value whose text the field holds, of `options`.
template <typename T>
T parse_choice(const JsonField& json, std::initializer_list<std::pair<std::string_view, T>> options) {
  const std::string text = json.text();
  std::string known;
  for (const auto& [name, value] : options) {
    if (name == text) return value;
    known += fmt::format(" {}", name);
  }
  json.fail(fmt::format("unknown value '{:.64}' (allowed:{})", text, known));
}

class PlacementRule {
 public:
  /// Throws InvalidLayout naming the field: unknown kind, policy, axis or encoding, unknown or missing key,
  /// bad expression.
  static PlacementRule parse(const JsonField& json);

  /// Throws InvalidLayout when an expression cannot be evaluated, UnsupportedLayout when a pair of ranges
  /// does not fit together.
  Placement evaluate(const Geometry& geometry, const Mesh& mesh) const;

  Axis axis() const noexcept { return axis_; }

 private:
  struct HeadsRule {
    int dim = 0;
    Expression n_heads, n_kv_heads, head_dim;
  };
  struct PairRule {
    int dim = 0;
    std::array<Expression, 4> bounds;  // first begin, first end, second begin, second end
  };
  struct SegmentRule {
    std::vector<Expression> begin;  // one or none: a segment without one follows its predecessor
    Expression items, unit;
    std::string label;
    bool replicates = false;
  };
  struct SegmentsRule {
    int dim = 0;
    std::vector<SegmentRule> segments;
  };
  struct ShardRule {
    int dim = 0;
    SplitPolicy policy = SplitPolicy::even;
    Expression multiple, unit;
  };
  /// A placement with a dimension and one number.
  struct NumberRule {
    enum class Kind : std::uint8_t { strided, replicated_groups } kind;
    int dim = 0;
    Expression number;
  };
  struct GroupedRule {
    int dim = 0;
    Expression groups;
    std::vector<Expression> units;
  };
  using Rule = std::variant<Placement, HeadsRule, PairRule, SegmentsRule, ShardRule, NumberRule, GroupedRule>;

  explicit PlacementRule(Rule rule) : rule_(std::move(rule)) {}

  static Rule parse_rule(const JsonField& json);
  static ShardRule parse_shard(const JsonField& json);
  static GroupedRule parse_grouped(const JsonField& json);
  static HeadsRule parse_heads(const JsonField& json);
  static PairRule parse_pair(const JsonField& json);
  static SegmentRule parse_segment(const JsonField& json);
  static SegmentsRule parse_segments(const JsonField& json);

  static Placement evaluate(const SegmentsRule& rule, const Geometry& geometry, const Mesh& mesh);

  Rule rule_;
  Axis axis_ = Axis::tp;
};

}  // namespace shardcheck
