#include "table_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

namespace shardcheck {
namespace {

constexpr std::string_view kLayer = "{layer}";
constexpr std::string_view kExpert = "{expert}";
constexpr std::size_t kMaxSteps = 8;
constexpr std::size_t kMaxParts = 16;

void add_roles(const Geometry& geometry, std::map<std::string, RoleScope, std::less<>>& all) {
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    all[tensor.role] = tensor.layer < 0    ? RoleScope::model
                       : tensor.expert < 0 ? RoleScope::layer
                                           : RoleScope::expert;
  }
}

/// Every role of every kind of model.
const std::map<std::string, RoleScope, std::less<>>& known_roles() {
  static const auto roles = [] {
    std::map<std::string, RoleScope, std::less<>> all;
    Geometry everything;
    everything.n_layers = 1;
    everything.qkv_bias = everything.o_bias = everything.qk_norm = true;
    everything.norm = Norm::layer;
    everything.mlp_bias = everything.sinks = true;
    everything.positions = 1;
    add_roles(everything, all);
    everything.n_experts = everything.expert_ffn = everything.shared_ffn = 1;
    everything.router_bias = true;
    everything.q_lora = everything.kv_lora = 1;
    everything.nope_dim = everything.rope_dim = everything.v_dim = 1;
    add_roles(everything, all);
    return all;
  }();
  return roles;
}

std::vector<std::string> parse_roles(const JsonField& json) {
  std::vector<std::string> roles;
  for (const JsonField& field : json.elements(1, kMaxParts)) {
    std::string role = field.text();
    const auto scope = scope_of_role(role);
    if (!scope) {
      field.fail(fmt::format("unknown role '{:.64}' (known: {})", role, fmt::join(role_names(), " ")));
    }
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) {
      field.fail(fmt::format("role '{}' appears twice", role));
    }
    roles.push_back(std::move(role));
    if (*scope != *scope_of_role(roles.front())) {
      field.fail(fmt::format("role '{}' and role '{}' cannot share a tensor: only one is per layer{}",
                             roles.back(), roles.front(), *scope == RoleScope::expert ? " and expert" : ""));
    }
  }
  return roles;
}

/// Removes a placeholder that must, or must not, be there. Throws InvalidLayout.
void take_placeholder(const JsonField& json, const std::string& pattern, std::string& rest,
                      std::string_view placeholder, bool wanted, std::string_view what) {
  const std::size_t at = rest.find(placeholder);
  if (wanted && at == std::string::npos) {
    json.fail(fmt::format("pattern '{}' lacks {} although its roles are per {}", pattern, placeholder, what));
  }
  if (!wanted && at != std::string::npos) {
    json.fail(
        fmt::format("pattern '{}' has {} although its roles are not per {}", pattern, placeholder, what));
  }
  if (wanted) rest.erase(at, placeholder.size());
}

/// A pattern names its layer and its expert exactly when its roles have one, once, and has no other
/// placeholder.
void check_pattern(const JsonField& json, const std::string& pattern, RoleScope scope, bool stacks_experts) {
  std::string rest = pattern;
  take_placeholder(json, pattern, rest, kLayer, scope != RoleScope::model, "layer");
  take_placeholder(json, pattern, rest, kExpert, scope == RoleScope::expert && !stacks_experts, "expert");
  if (rest.find_first_of("{}*?") != std::string::npos) {
    json.fail(fmt::format("pattern '{}': {} and {} may appear once, no other placeholder is known", pattern,
                          kLayer, kExpert));
  }
}

void replace(std::string& text, std::string_view placeholder, std::int64_t number) {
  const std::size_t at = text.find(placeholder);
  if (at != std::string::npos) text.replace(at, placeholder.size(), std::to_string(number));
}

/// Rows of padding that bring `length` to a multiple.
std::int64_t padding_after(std::int64_t length, std::int64_t multiple) {
  constexpr std::int64_t kMaxMultiple = std::int64_t{1} << 24;
  if (multiple < 1 || multiple > kMaxMultiple) {
    throw InvalidLayout(fmt::format("pad: multiple {}; allowed: 1..{}", multiple, kMaxMultiple));
  }
  return (multiple - length % multiple) % multiple;
}

std::vector<PlacementRule> parse_placements(const JsonField& json) {
  if (!json.value().is_array()) return {PlacementRule::parse(json)};
  std::vector<PlacementRule> placements;
  for (const JsonField& placement : json.elements(1, kAxes)) {
    placements.push_back(PlacementRule::parse(placement));
  }
  return placements;
}

/// A role of the model, or of the layer or expert that the rule speaks of.
std::string parse_condition(const JsonField& json, RoleScope scope, bool stacks_experts) {
  std::string role = json.text();
  const auto found = scope_of_role(role);
  if (!found) json.fail(fmt::format("unknown role '{:.64}' (known: {})", role, fmt::join(role_names(), " ")));
  if (*found > scope) {
    json.fail(fmt::format("role '{}' is not one of the model{}", role,
                          scope == RoleScope::model ? "" : " or of a layer"));
  }
  if (*found == RoleScope::expert && stacks_experts) {
    json.fail(fmt::format("role '{}' is one of an expert; allowed where experts are not stacked", role));
  }
  return role;
}

Stage parse_stage(const JsonField& json) {
  return parse_choice<Stage>(json, {{"every", Stage::every}, {"first", Stage::first}, {"last", Stage::last}});
}

}  // namespace

std::optional<RoleScope> scope_of_role(std::string_view role) {
  const auto found = known_roles().find(role);
  if (found == known_roles().end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const auto& [name, scope] : known_roles()) names.push_back(name);
  return names;
}

OrderStep::Grouped OrderStep::parse_grouped(const JsonField& json) {
  json.require_object({"kind", "groups", "units"}, {"begin", "inverse"});
  Grouped grouped{parse_size(json.at("groups")), {}};
  for (const JsonField& unit : json.at("units").elements(1, kMaxParts)) {
    grouped.units.push_back(parse_size(unit));
  }
  return grouped;
}

OrderStep::Rotary OrderStep::parse_rotary(const JsonField& json) {
  json.require_object({"kind", "heads", "head_dim"}, {"begin", "rotary", "inverse"});
  const Expression head_dim = parse_size(json.at("head_dim"));
  return {parse_size(json.at("heads")), head_dim,
          json.has("rotary") ? parse_size(json.at("rotary")) : head_dim};
}

OrderStep OrderStep::parse(const JsonField& json) {
  enum class Name { grouped, rotary, pad };
  json.require_object({"kind"},
                      {"begin", "groups", "head_dim", "heads", "inverse", "multiple", "rotary", "units"});
  const Name name = parse_choice<Name>(
      json.at("kind"),
      {{"grouped", Name::grouped}, {"rotary_interleaved", Name::rotary}, {"pad", Name::pad}});
  const Expression begin = json.has("begin") ? parse_size(json.at("begin")) : Expression::constant(0);
  const bool inverse = json.has("inverse") && json.at("inverse").boolean();
  switch (name) {
    case Name::grouped:
      return {begin, parse_grouped(json), inverse};
    case Name::rotary:
      return {begin, parse_rotary(json), inverse};
    case Name::pad:
      json.require_object({"kind", "begin", "multiple"});
      return {begin, Pad{parse_size(json.at("multiple"))}, false};
  }
  json.fail("unknown kind");
}

std::vector<Run> OrderStep::moved(const Geometry& geometry, const Mesh& mesh) const {
  const auto value = [&](const Expression& expression) { return expression.evaluate(geometry, mesh); };
  if (const auto* pad = std::get_if<Pad>(&kind_)) {
    return {{kPadding, padding_after(value(begin_), value(pad->multiple))}};
  }
  std::vector<Run> runs;
  if (const auto* rotary = std::get_if<Rotary>(&kind_)) {
    runs = interleaved_rotary(value(rotary->heads), value(rotary->head_dim), value(rotary->rotary));
  } else {
    const auto& grouped = std::get<Grouped>(kind_);
    Interleave interleave{value(grouped.groups), {}};
    for (const Expression& unit : grouped.units) interleave.units.push_back(value(unit));
    runs = runs_of(interleave);
  }
  return inverse_ ? inverse_runs(runs) : runs;
}

std::vector<Run> OrderStep::evaluate(const Geometry& geometry, const Mesh& mesh, std::int64_t length) const {
  const std::int64_t begin = begin_.evaluate(geometry, mesh);
  if (begin < 0 || begin > length) {
    throw InvalidLayout(fmt::format("order: a step begins at row {} of {}", begin, length));
  }
  const std::vector<Run> runs = moved(geometry, mesh);
  const std::int64_t rows = std::holds_alternative<Pad>(kind_) ? 0 : length_of(runs);
  if (rows > length - begin) {
    throw InvalidLayout(fmt::format("order: a step moves rows {}..{} of {}", begin, begin + rows, length));
  }
  std::vector<Run> order;
  append_run(order, {0, begin});
  for (const Run& run : runs) {
    append_run(order, {run.global == kPadding ? kPadding : begin + run.global, run.length});
  }
  append_run(order, {begin + rows, length - begin - rows});
  return order;
}

TableRule TableRule::parse(const JsonField& json) {
  json.require_object({"tensor", "logical", "placement"},
                      {"optional", "order", "pad", "tied", "stage", "transposed", "stack", "dim", "shift",
                       "layers", "with", "without"});
  TableRule rule;
  rule.pattern_ = json.at("tensor").text();
  const JsonField named = json.named(fmt::format("{} ({})", json.path(), rule.pattern_));
  const auto flag = [&](std::string_view key) { return named.has(key) && named.at(key).boolean(); };
  rule.roles_ = parse_roles(named.at("logical"));
  rule.optional_ = flag("optional");
  rule.tied_ = flag("tied");
  rule.transposed_ = flag("transposed");
  if (named.has("stack")) {
    if (rule.scope() != RoleScope::expert || named.at("stack").text() != "experts") {
      named.at("stack").fail("allowed: \"experts\", for roles that are per expert");
    }
    rule.stacks_experts_ = true;
  }
  check_pattern(named.at("tensor"), rule.pattern_, rule.scope(), rule.stacks_experts_);
  rule.placements_ = parse_placements(named.at("placement"));
  if (named.has("order")) {
    for (const JsonField& step : named.at("order").elements(1, kMaxSteps)) {
      rule.order_.push_back(OrderStep::parse(step));
    }
  }
  if (named.has("pad")) {
    named.at("pad").require_object({"multiple"});
    rule.pad_multiple_.push_back(parse_size(named.at("pad").at("multiple")));
  }
  if (named.has("with")) rule.with_ = parse_condition(named.at("with"), rule.scope(), rule.stacks_experts_);
  if (named.has("without"))
    rule.without_ = parse_condition(named.at("without"), rule.scope(), rule.stacks_experts_);
  if (named.has("stage")) {
    if (rule.scope() != RoleScope::model) named.at("stage").fail("allowed for roles outside layers");
    rule.stage_ = parse_stage(named.at("stage"));
  }
  if (named.has("layers")) {
    if (rule.scope() != RoleScope::layer) named.at("layers").fail("allowed for roles that are per layer");
    rule.layers_ = parse_choice<LayerKind>(named.at("layers"),
                                           {{"dense", LayerKind::dense}, {"experts", LayerKind::experts}});
  }
  if (rule.tied_ && rule.stage_ != Stage::last) {
    named.at("tied").fail("allowed with the stage last: a copy where a pipeline separates the two users");
  }
  if (named.has("dim")) rule.dim_ = static_cast<int>(named.at("dim").integer(0, 3));
  if (named.has("shift")) rule.shift_ = static_cast<float>(named.at("shift").integer(-1, 1));
  return rule;
}

RoleScope TableRule::scope() const { return scope_of_role(roles_.front()).value(); }

std::optional<RulePlace> TableRule::match(std::string_view name) const {
  RulePlace place;
  std::string_view pattern = pattern_;
  while (!pattern.empty()) {
    const bool layer = pattern.starts_with(kLayer), expert = pattern.starts_with(kExpert);
    if (layer || expert) {
      std::int64_t& number = layer ? place.layer : place.expert;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
      const auto digits = static_cast<std::size_t>(end - name.data());
      if (error != std::errc{} || number < 0 || (digits > 1 && name.front() == '0')) return std::nullopt;
      name.remove_prefix(digits);
      pattern.remove_prefix((layer ? kLayer : kExpert).size());
    } else {
      if (name.empty() || name.front() != pattern.front()) return std::nullopt;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  if (!name.empty()) return std::nullopt;
  return place;
}

std::string TableRule::name(std::int64_t layer, std::int64_t expert) const {
  std::string name = pattern_;
  replace(name, kLayer, layer);
  replace(name, kExpert, expert);
  return name;
}

Arrangement TableRule::arrangement(const Geometry& geometry, const Mesh& mesh,
                                   const std::vector<LogicalTensor>& parts) const {
  Arrangement arrangement;
  if (stacks_experts_) arrangement.stacked = std::ssize(parts) / std::ssize(roles_);
  const int first = stacks_experts_ ? 1 : 0;
  const int last = first + static_cast<int>(parts.front().shape.size()) - 1;
  arrangement.transposed = transposed_;
  arrangement.dim = dim_ >= 0 ? dim_ : transposed_ ? last : first;
  arrangement.shift = shift_;
  if (order_.empty() && pad_multiple_.empty()) return arrangement;
  const std::vector<std::int64_t> extents = part_extents(arrangement, parts);
  const std::int64_t length = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  append_run(arrangement.order, {0, length});
  for (const OrderStep& step : order_) {
    const std::int64_t rows = length_of(arrangement.order);
    arrangement.order = compose_runs(arrangement.order, step.evaluate(geometry, mesh, rows));
  }
  if (!pad_multiple_.empty()) {
    const std::int64_t multiple = pad_multiple_.front().evaluate(geometry, mesh);
    append_run(arrangement.order, {kPadding, padding_after(length_of(arrangement.order), multiple)});
  }
  if (arrangement.order == std::vector<Run>{{0, length}}) arrangement.order.clear();
  return arrangement;
}

}  // namespace shardcheck
