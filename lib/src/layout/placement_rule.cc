#include "placement_rule.h"

#include <fmt/format.h>

#include <limits>

namespace shardcheck {
namespace {

constexpr int kMaxDim = 3;
constexpr std::size_t kMaxSegments = 64;

/// An integer, or the text of an expression.
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

int parse_dim(const JsonField& json) {
  return json.has("dim") ? static_cast<int>(json.at("dim").integer(0, kMaxDim)) : 0;
}

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

Placement parse_shard(const JsonField& json) {
  json.require_object({"kind", "dim"}, {"policy"});
  Shard shard{parse_dim(json), SplitPolicy::even};
  if (json.has("policy")) {
    shard.policy = parse_choice<SplitPolicy>(
        json.at("policy"),
        {{"even", SplitPolicy::even}, {"chunk", SplitPolicy::chunk}, {"balanced", SplitPolicy::balanced}});
  }
  return shard;
}

Placement parse_partial(const JsonField& json) {
  json.require_object({"kind", "encoding"});
  return Partial{parse_choice<Partial::Encoding>(
      json.at("encoding"),
      {{"first_rank", Partial::Encoding::first_rank}, {"equal_share", Partial::Encoding::equal_share}})};
}

}  // namespace

PlacementRule::HeadsRule PlacementRule::parse_heads(const JsonField& json) {
  json.require_object({"kind", "n_heads", "n_kv_heads", "head_dim"}, {"dim"});
  return {parse_dim(json), parse_size(json.at("n_heads")), parse_size(json.at("n_kv_heads")),
          parse_size(json.at("head_dim"))};
}

PlacementRule::PairRule PlacementRule::parse_pair(const JsonField& json) {
  json.require_object({"kind", "first", "second"}, {"dim"});
  const auto first = json.at("first").elements(2, 2);
  const auto second = json.at("second").elements(2, 2);
  return {parse_dim(json),
          {parse_size(first[0]), parse_size(first[1]), parse_size(second[0]), parse_size(second[1])}};
}

PlacementRule::SegmentRule PlacementRule::parse_segment(const JsonField& json) {
  json.require_object({"items"}, {"unit", "begin", "label"});
  SegmentRule rule;
  if (json.has("begin")) rule.begin.push_back(parse_size(json.at("begin")));
  rule.items = parse_size(json.at("items"));
  rule.unit = json.has("unit") ? parse_size(json.at("unit")) : Expression::constant(1);
  rule.label = json.has("label") ? json.at("label").text() : rule.items.text();
  return rule;
}

PlacementRule::SegmentsRule PlacementRule::parse_segments(const JsonField& json) {
  json.require_object({"kind", "segments"}, {"dim"});
  SegmentsRule rule{parse_dim(json), {}};
  for (const JsonField& segment : json.at("segments").elements(1, kMaxSegments)) {
    rule.segments.push_back(parse_segment(segment));
  }
  return rule;
}

PlacementRule PlacementRule::parse(const JsonField& json) {
  enum class Kind { replicate, shard, segments, heads, pair, partial };
  json.require_object({"kind"}, {"dim", "policy", "encoding", "segments", "n_heads", "n_kv_heads", "head_dim",
                                 "first", "second"});
  const Kind kind = parse_choice<Kind>(json.at("kind"), {{"replicate", Kind::replicate},
                                                         {"shard", Kind::shard},
                                                         {"segments", Kind::segments},
                                                         {"head_partitioned", Kind::heads},
                                                         {"fused_paired", Kind::pair},
                                                         {"partial", Kind::partial}});
  switch (kind) {
    case Kind::replicate:
      json.require_object({"kind"});
      return PlacementRule(Placement(Replicate{}));
    case Kind::shard:
      return PlacementRule(parse_shard(json));
    case Kind::segments:
      return PlacementRule(parse_segments(json));
    case Kind::heads:
      return PlacementRule(parse_heads(json));
    case Kind::pair:
      return PlacementRule(parse_pair(json));
    case Kind::partial:
      return PlacementRule(parse_partial(json));
  }
  json.fail("unknown kind");
}

Placement PlacementRule::evaluate(const Geometry& geometry) const {
  const auto value = [&](const Expression& expression) { return expression.evaluate(geometry); };
  if (const auto* placement = std::get_if<Placement>(&rule_)) return *placement;
  if (const auto* heads = std::get_if<HeadsRule>(&rule_)) {
    return head_partitioned(value(heads->n_heads), value(heads->n_kv_heads), value(heads->head_dim),
                            heads->dim);
  }
  if (const auto* pair = std::get_if<PairRule>(&rule_)) {
    const auto& b = pair->bounds;
    return fused_paired({value(b[0]), value(b[1])}, {value(b[2]), value(b[3])}, pair->dim);
  }
  const auto& rule = std::get<SegmentsRule>(rule_);
  Segments placement{rule.dim, {}};
  std::int64_t next = 0;
  for (const SegmentRule& part : rule.segments) {
    Segment segment{part.begin.empty() ? next : value(part.begin.front()), value(part.items),
                    value(part.unit), part.label};
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
