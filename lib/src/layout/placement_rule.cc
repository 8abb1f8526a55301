#include "placement_rule.h"

#include <fmt/format.h>

#include <limits>

#include "layout/overloaded.h"

namespace shardcheck {
namespace {

constexpr int kMaxDim = 3;
constexpr std::size_t kMaxSegments = 64;

int parse_dim(const JsonField& json) {
  return json.has("dim") ? static_cast<int>(json.at("dim").integer(0, kMaxDim)) : 0;
}

Placement parse_partial(const JsonField& json) {
  json.require_object({"kind", "encoding"}, {"axis"});
  return Partial{parse_choice<Partial::Encoding>(
      json.at("encoding"),
      {{"first_rank", Partial::Encoding::first_rank}, {"equal_share", Partial::Encoding::equal_share}})};
}

}  // namespace

Expression parse_size(const JsonField& json) {
  if (!json.value().is_string()) {
    return Expression::constant(json.integer(0, std::numeric_limits<std::int64_t>::max()));
  }
  try {
    return Expression::parse(json.text());
  } catch (const InvalidLayout& error) {
    json.fail(error.what());
  }
}

PlacementRule::ShardRule PlacementRule::parse_shard(const JsonField& json) {
  json.require_object({"kind", "dim"}, {"policy", "multiple", "unit", "axis"});
  ShardRule shard{parse_dim(json), SplitPolicy::even, Expression::constant(1), Expression::constant(1)};
  if (json.has("policy")) {
    shard.policy = parse_choice<SplitPolicy>(json.at("policy"), {{"even", SplitPolicy::even},
                                                                 {"chunk", SplitPolicy::chunk},
                                                                 {"balanced", SplitPolicy::balanced},
                                                                 {"padded", SplitPolicy::padded}});
  }
  if (json.has("multiple")) {
    if (shard.policy != SplitPolicy::padded) json.at("multiple").fail("allowed with the policy padded only");
    shard.multiple = parse_size(json.at("multiple"));
  }
  if (json.has("unit")) {
    if (shard.policy == SplitPolicy::padded) json.at("unit").fail("not allowed with the policy padded");
    shard.unit = parse_size(json.at("unit"));
  }
  return shard;
}

PlacementRule::GroupedRule PlacementRule::parse_grouped(const JsonField& json) {
  json.require_object({"kind", "groups", "units"}, {"dim", "axis"});
  GroupedRule rule{parse_dim(json), parse_size(json.at("groups")), {}};
  for (const JsonField& unit : json.at("units").elements(1, kMaxSegments)) {
    rule.units.push_back(parse_size(unit));
  }
  return rule;
}

PlacementRule::HeadsRule PlacementRule::parse_heads(const JsonField& json) {
  json.require_object({"kind", "n_heads", "n_kv_heads", "head_dim"}, {"dim", "axis"});
  return {parse_dim(json), parse_size(json.at("n_heads")), parse_size(json.at("n_kv_heads")),
          parse_size(json.at("head_dim"))};
}

PlacementRule::PairRule PlacementRule::parse_pair(const JsonField& json) {
  json.require_object({"kind", "first", "second"}, {"dim", "axis"});
  const auto first = json.at("first").elements(2, 2);
  const auto second = json.at("second").elements(2, 2);
  return {parse_dim(json),
          {parse_size(first[0]), parse_size(first[1]), parse_size(second[0]), parse_size(second[1])}};
}

PlacementRule::SegmentRule PlacementRule::parse_segment(const JsonField& json) {
  json.require_object({"items"}, {"unit", "begin", "label", "replicate"});
  SegmentRule rule;
  if (json.has("begin")) rule.begin.push_back(parse_size(json.at("begin")));
  rule.items = parse_size(json.at("items"));
  rule.unit = json.has("unit") ? parse_size(json.at("unit")) : Expression::constant(1);
  rule.replicates = json.has("replicate") && json.at("replicate").boolean();
  rule.label = json.has("label") ? json.at("label").text() : rule.items.text();
  return rule;
}

PlacementRule::SegmentsRule PlacementRule::parse_segments(const JsonField& json) {
  json.require_object({"kind", "segments"}, {"dim", "axis"});
  SegmentsRule rule{parse_dim(json), {}};
  for (const JsonField& segment : json.at("segments").elements(1, kMaxSegments)) {
    rule.segments.push_back(parse_segment(segment));
  }
  return rule;
}

PlacementRule PlacementRule::parse(const JsonField& json) {
  PlacementRule rule(parse_rule(json));
  if (json.has("axis")) {
    const std::string name = json.at("axis").text();
    const auto axis = axis_from_name(name);
    if (!axis) {
      json.at("axis").fail(fmt::format("unknown axis '{:.64}' (allowed: tp ep etp pp dp cp)", name));
    }
    rule.axis_ = *axis;
  }
  return rule;
}

PlacementRule::Rule PlacementRule::parse_rule(const JsonField& json) {
  enum class Kind { replicate, shard, segments, heads, pair, strided, grouped, replicated_groups, partial };
  json.require_object(
      {"kind"}, {"axis", "blocks", "dim", "encoding", "first", "groups", "head_dim", "multiple", "n_heads",
                 "n_kv_heads", "policy", "second", "segments", "split_factor", "unit", "units"});
  const Kind kind = parse_choice<Kind>(json.at("kind"), {{"replicate", Kind::replicate},
                                                         {"shard", Kind::shard},
                                                         {"segments", Kind::segments},
                                                         {"head_partitioned", Kind::heads},
                                                         {"fused_paired", Kind::pair},
                                                         {"strided", Kind::strided},
                                                         {"grouped", Kind::grouped},
                                                         {"replicated_groups", Kind::replicated_groups},
                                                         {"partial", Kind::partial}});
  switch (kind) {
    case Kind::replicate:
      json.require_object({"kind"}, {"axis"});
      return Placement(Replicate{});
    case Kind::shard:
      return parse_shard(json);
    case Kind::segments:
      return parse_segments(json);
    case Kind::heads:
      return parse_heads(json);
    case Kind::pair:
      return parse_pair(json);
    case Kind::strided:
      json.require_object({"kind", "split_factor"}, {"dim", "axis"});
      return NumberRule{NumberRule::Kind::strided, parse_dim(json), parse_size(json.at("split_factor"))};
    case Kind::grouped:
      return parse_grouped(json);
    case Kind::replicated_groups:
      json.require_object({"kind", "blocks"}, {"dim", "axis"});
      return NumberRule{NumberRule::Kind::replicated_groups, parse_dim(json), parse_size(json.at("blocks"))};
    case Kind::partial:
      return parse_partial(json);
  }
  json.fail("unknown kind");
}

Placement PlacementRule::evaluate(const Geometry& geometry, const Mesh& mesh) const {
  const auto value = [&](const Expression& expression) { return expression.evaluate(geometry, mesh); };
  return std::visit(
      Overloaded{[](const Placement& placement) { return placement; },
                 [&](const ShardRule& rule) -> Placement {
                   return Shard{rule.dim, rule.policy, value(rule.multiple), value(rule.unit)};
                 },
                 [&](const HeadsRule& rule) -> Placement {
                   return head_partitioned(value(rule.n_heads), value(rule.n_kv_heads), value(rule.head_dim),
                                           rule.dim);
                 },
                 [&](const PairRule& rule) -> Placement {
                   const auto& b = rule.bounds;
                   return fused_paired({value(b[0]), value(b[1])}, {value(b[2]), value(b[3])}, rule.dim);
                 },
                 [&](const NumberRule& rule) -> Placement {
                   if (rule.kind == NumberRule::Kind::strided) return Strided{rule.dim, value(rule.number)};
                   return ReplicatedGroups{rule.dim, value(rule.number)};
                 },
                 [&](const GroupedRule& rule) -> Placement {
                   Grouped grouped{rule.dim, {value(rule.groups), {}}};
                   for (const Expression& unit : rule.units) grouped.interleave.units.push_back(value(unit));
                   return grouped;
                 },
                 [&](const SegmentsRule& rule) { return evaluate(rule, geometry, mesh); }},
      rule_);
}

Placement PlacementRule::evaluate(const SegmentsRule& rule, const Geometry& geometry, const Mesh& mesh) {
  const auto value = [&](const Expression& expression) { return expression.evaluate(geometry, mesh); };
  Segments placement{rule.dim, {}};
  std::int64_t next = 0;
  for (const SegmentRule& part : rule.segments) {
    Segment segment{part.begin.empty() ? next : value(part.begin.front()), value(part.items),
                    value(part.unit), part.label, part.replicates};
    std::int64_t length = 0;
    if (__builtin_mul_overflow(segment.items, segment.unit, &length) ||
        __builtin_add_overflow(segment.begin, length, &next)) {
      throw InvalidLayout(fmt::format("segment '{}' does not fit 64 bits", part.label));
    }
    placement.segments.push_back(std::move(segment));
  }
  return placement;
}

}  // namespace shardcheck
