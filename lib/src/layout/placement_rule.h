// The placement of a table's rule: checked once when the table is parsed, evaluated for every geometry.
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "expression.h"
#include "json_field.h"
#include "shardcheck/layout/placement.h"

namespace shardcheck {

class PlacementRule {
 public:
  /// Throws InvalidLayout naming the field: unknown kind, policy or encoding, unknown or missing key, bad
  /// expression.
  static PlacementRule parse(const JsonField& json);

  /// Throws InvalidLayout when an expression cannot be evaluated, UnsupportedLayout when a pair of ranges
  /// does not fit together.
  Placement evaluate(const Geometry& geometry) const;

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
  };
  struct SegmentsRule {
    int dim = 0;
    std::vector<SegmentRule> segments;
  };
  using Rule = std::variant<Placement, HeadsRule, PairRule, SegmentsRule>;

  explicit PlacementRule(Rule rule) : rule_(std::move(rule)) {}

  static HeadsRule parse_heads(const JsonField& json);
  static PairRule parse_pair(const JsonField& json);
  static SegmentRule parse_segment(const JsonField& json);
  static SegmentsRule parse_segments(const JsonField& json);

  Rule rule_;
};

}  // namespace shardcheck
