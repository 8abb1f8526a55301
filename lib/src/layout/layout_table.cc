#include "shardcheck/layout/layout_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "json_field.h"
#include "layout/logical_index.h"
#include "placement_rule.h"
#include "shardcheck/layout/embedded.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/text/nearest_name.h"
#include "text/json_guard.h"

namespace shardcheck {

std::span<const EmbeddedFile> embedded_layout_tables();

namespace {

constexpr std::size_t kMaxTableBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxRules = 64;
constexpr std::string_view kLayer = "{layer}";

/// Role -> whether it belongs to a layer, of a model that has every part.
const std::map<std::string, bool, std::less<>>& known_roles() {
  static const auto roles = [] {
    Geometry everything;
    everything.n_layers = 1;
    everything.qkv_bias = everything.o_bias = everything.qk_norm = true;
    std::map<std::string, bool, std::less<>> all;
    for (const LogicalTensor& tensor : logical_tensors(everything)) all[tensor.role] = tensor.layer >= 0;
    return all;
  }();
  return roles;
}

std::vector<std::string> parse_roles(const JsonField& json) {
  std::vector<std::string> roles;
  for (const JsonField& field : json.elements(1, known_roles().size())) {
    std::string role = field.text();
    const auto known = known_roles().find(role);
    if (known == known_roles().end()) {
      std::vector<std::string> names;
      for (const auto& [name, in_layer] : known_roles()) names.push_back(name);
      field.fail(fmt::format("unknown role '{:.64}' (known: {})", role, fmt::join(names, " ")));
    }
    roles.push_back(std::move(role));
    if (known->second != known_roles().at(roles.front())) {
      field.fail(fmt::format("role '{}' and role '{}' cannot share a tensor: only one is per layer",
                             roles.back(), roles.front()));
    }
  }
  return roles;
}

/// A pattern names its layer exactly when its roles have one, and has no other placeholder.
void check_pattern(const JsonField& json, const std::string& pattern, bool in_layer) {
  const std::size_t at = pattern.find(kLayer);
  if (in_layer && at == std::string::npos) {
    json.fail(fmt::format("pattern '{}' lacks {} although its roles are per layer", pattern, kLayer));
  }
  if (!in_layer && at != std::string::npos) {
    json.fail(fmt::format("pattern '{}' has {} although its roles are not per layer", pattern, kLayer));
  }
  std::string rest = pattern;
  if (in_layer) rest.erase(at, kLayer.size());
  if (rest.find_first_of("{}*?") != std::string::npos) {
    json.fail(
        fmt::format("pattern '{}': {} may appear once, no other placeholder is known", pattern, kLayer));
  }
}

std::string with_layer(std::string pattern, std::int64_t layer) {
  const std::size_t at = pattern.find(kLayer);
  if (at != std::string::npos) pattern.replace(at, kLayer.size(), std::to_string(layer));
  return pattern;
}

std::string role_of_pattern(const std::string& pattern) {
  const std::size_t at = pattern.find(kLayer);
  return at == std::string::npos ? pattern : pattern.substr(std::min(at + kLayer.size() + 1, pattern.size()));
}

/// A word of the header: a name in lower case.
std::string parse_word(const JsonField& json) {
  const std::string word = json.text();
  const std::string allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  if (word.size() > 64 || word.find_first_not_of(allowed) != std::string::npos) {
    json.fail(fmt::format("'{:.64}' is not a name of 1..64 characters of a-z 0-9 - _", word));
  }
  return word;
}

void check_mesh(const JsonField& json) {
  for (const JsonField& axis : json.elements(1, 1)) {
    if (const std::string name = axis.text(); name != "tp") {
      axis.fail(fmt::format("unknown mesh axis '{:.64}' (allowed: tp)", name));
    }
  }
}

std::string parse_consumer(const JsonField& json) {
  std::string consumer = json.text();
  const std::vector<std::string> known = consumer_names();
  if (std::find(known.begin(), known.end(), consumer) == known.end()) {
    json.fail(fmt::format("unknown consumer '{:.64}' (known: {})", consumer, fmt::join(known, " ")));
  }
  return consumer;
}

const LogicalTensor* find_role(const LogicalIndex& logical, std::string_view role, std::int64_t layer) {
  const auto found = logical.find(logical_name(role, layer));
  return found ? &logical[*found] : nullptr;
}

/// Shape of parts stacked along dimension 0; nullopt when they do not stack.
std::optional<Shape> stacked_shape(const std::vector<LogicalTensor>& parts) {
  Shape shape = parts.front().shape;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Shape& part = parts[i].shape;
    if (shape.empty() || part.size() != shape.size() ||
        !std::equal(part.begin() + 1, part.end(), shape.begin() + 1)) {
      return std::nullopt;
    }
    shape.front() += part.front();
  }
  return shape;
}

}  // namespace

const LayoutEntry& Layout::entry_of(std::string_view logical_name) const {
  for (const LayoutEntry& entry : entries) {
    for (const LogicalTensor& part : entry.parts) {
      if (part.name == logical_name) return entry;
    }
  }
  throw std::out_of_range(fmt::format("layout {} holds no tensor '{}'", to_string(name), logical_name));
}

const LayoutEntry* Layout::find(std::string_view entry_name) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const LayoutEntry& entry) { return entry.name == entry_name; });
  return found == entries.end() ? nullptr : &*found;
}

LayoutTable LayoutTable::parse(std::string_view json, const std::string& origin) {
  const nlohmann::json document = parse_json_object<InvalidLayout>(json, origin, kMaxTableBytes);
  const JsonField root(document, origin);
  root.require_object({"name", "framework", "family", "consumer", "mesh", "rules"});
  LayoutTable table;
  table.origin_ = origin;
  table.name_ = parse_word(root.at("name"));
  table.framework_ = root.at("framework").text();
  table.family_ = root.at("family").text();
  table.consumer_ = parse_consumer(root.at("consumer"));
  check_mesh(root.at("mesh"));
  std::map<std::string, std::string> rule_of_role;
  std::set<std::string> patterns;
  for (const JsonField& field : root.at("rules").elements(1, kMaxRules)) {
    Rule rule = parse_rule(field);
    const JsonField named = field.named(fmt::format("{} ({})", field.path(), rule.pattern));
    if (!patterns.insert(rule.pattern).second) named.fail("two rules for this tensor");
    for (const std::string& role : rule.logical) {
      const auto [other, inserted] = rule_of_role.emplace(role, rule.pattern);
      if (!inserted)
        named.fail(fmt::format("logical: role '{}' already has the rule '{}'", role, other->second));
    }
    table.rules_.push_back(std::move(rule));
  }
  return table;
}

LayoutTable::Rule LayoutTable::parse_rule(const JsonField& json) {
  json.require_object({"tensor", "logical", "placement"}, {"optional"});
  Rule rule;
  rule.pattern = json.at("tensor").text();
  const JsonField named = json.named(fmt::format("{} ({})", json.path(), rule.pattern));
  rule.logical = parse_roles(named.at("logical"));
  check_pattern(named.at("tensor"), rule.pattern, known_roles().at(rule.logical.front()));
  rule.placement = std::make_shared<PlacementRule>(PlacementRule::parse(named.at("placement")));
  rule.optional = named.has("optional") && named.at("optional").boolean();
  return rule;
}

LayoutTable LayoutTable::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) {
    throw InvalidLayout(fmt::format("{}: cannot be opened", file.string()));
  }
  // One byte past the limit, so that parse sees and refuses a longer file.
  std::string text(kMaxTableBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse(text, file.string());
}

namespace {

const std::map<std::string, LayoutTable, std::less<>>& built_in_tables() {
  static const auto tables = [] {
    std::map<std::string, LayoutTable, std::less<>> all;
    for (const EmbeddedFile& file : embedded_layout_tables()) {
      LayoutTable table = LayoutTable::parse(file.text, std::string(file.name));
      std::string name = table.name();
      if (file.name != name + ".json") {
        throw InvalidLayout(fmt::format("{}: name: '{}' is not the name of the file", file.name, name));
      }
      all.emplace(std::move(name), std::move(table));
    }
    return all;
  }();
  return tables;
}

}  // namespace

std::vector<std::string> LayoutTable::built_in_names() {
  std::vector<std::string> names;
  for (const auto& [name, table] : built_in_tables()) names.push_back(name);
  return names;
}

const LayoutTable& LayoutTable::built_in(std::string_view name) {
  const auto found = built_in_tables().find(name);
  if (found != built_in_tables().end()) return found->second;
  std::vector<std::string> known = built_in_names();
  const std::string nearest = nearest_name(name, known);
  std::stable_partition(known.begin(), known.end(),
                        [&](const std::string& other) { return other == nearest; });
  throw InvalidLayout(fmt::format("unknown layout table '{:.64}' (known: {})", name, fmt::join(known, " ")));
}

/// Turns rules into entries for one geometry and degree.
class LayoutTable::Instantiator {
 public:
  Instantiator(const LayoutTable& table, const Geometry& geometry, int degree)
      : table_(table), geometry_(geometry), degree_(degree), logical_(geometry) {}

  /// Layers a rule is instantiated for: -1 alone for tensors outside layers, none when the rule is optional
  /// and the geometry lacks its roles.
  std::vector<std::int64_t> layers_of(const Rule& rule) const {
    const bool in_layer = known_roles().at(rule.logical.front());
    const std::int64_t first = in_layer ? 0 : -1;
    const auto missing =
        std::count_if(rule.logical.begin(), rule.logical.end(),
                      [&](const std::string& role) { return find_role(logical_, role, first) == nullptr; });
    if (missing == static_cast<std::ptrdiff_t>(rule.logical.size()) && rule.optional) return {};
    if (missing > 0) {
      fail(rule, fmt::format("logical: the geometry lacks {} of the roles {}", missing == 1 ? "one" : "some",
                             fmt::join(rule.logical, " ")));
    }
    std::vector<std::int64_t> layers;
    for (std::int64_t layer = first; layer < (in_layer ? geometry_.n_layers : 0); ++layer)
      layers.push_back(layer);
    return layers;
  }

  Placement placement_of(const Rule& rule, const std::string& name) const {
    try {
      return rule.placement->evaluate(geometry_);
    } catch (const UnsupportedLayout& error) {
      throw UnsupportedLayout(fmt::format("{}: {} (TP degree {})", name, error.what(), degree_));
    } catch (const InvalidLayout& error) {
      fail(rule, fmt::format("placement: {}", error.what()));
    }
  }

  LayoutEntry entry(const Rule& rule, std::int64_t layer) const {
    std::vector<LogicalTensor> parts;
    for (const std::string& role : rule.logical) parts.push_back(*find_role(logical_, role, layer));
    const std::optional<Shape> shape = stacked_shape(parts);
    if (!shape)
      fail(rule, fmt::format("logical: {} do not stack along dimension 0", fmt::join(rule.logical, " ")));
    std::string name = with_layer(rule.pattern, layer);
    PlacedTensor placed(name, *shape, placement_of(rule, name), degree_);
    return {std::move(name), std::move(parts), std::move(placed)};
  }

 private:
  [[noreturn]] void fail(const Rule& rule, const std::string& why) const {
    throw InvalidLayout(fmt::format("{}: rule '{}': {}", table_.origin_, rule.pattern, why));
  }

  const LayoutTable& table_;
  const Geometry& geometry_;
  int degree_;
  LogicalIndex logical_;
};

Layout LayoutTable::instantiate(const Geometry& geometry, int degree) const {
  validate(geometry);
  const Instantiator instantiator(*this, geometry, degree);
  Layout layout{{name_, {}}, consumer_, geometry, degree, {}};
  if (degree > 1) layout.name.axes.emplace_back("tp", degree);
  std::set<std::string_view> held, names;
  for (const Rule& rule : rules_) {
    for (const std::int64_t layer : instantiator.layers_of(rule)) {
      layout.entries.push_back(instantiator.entry(rule, layer));
    }
  }
  for (const LayoutEntry& entry : layout.entries) {
    if (!names.insert(entry.name).second) {
      throw InvalidLayout(fmt::format("{}: two rules make the tensor '{}'", origin_, entry.name));
    }
    for (const LogicalTensor& part : entry.parts) held.insert(part.name);
  }
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    if (!held.contains(tensor.name)) {
      throw InvalidLayout(fmt::format("{}: no rule for the logical tensor '{}'", origin_, tensor.name));
    }
  }
  return layout;
}

std::vector<std::string> LayoutTable::unrepresentable(const Geometry& geometry, int degree) const {
  validate(geometry);
  const Instantiator instantiator(*this, geometry, degree);
  std::vector<std::string> roles;
  for (const Rule& rule : rules_) {
    const std::vector<std::int64_t> layers = instantiator.layers_of(rule);
    if (layers.empty()) continue;
    try {
      instantiator.entry(rule, layers.front());  // every layer has the same shapes
    } catch (const UnsupportedLayout&) {
      roles.push_back(role_of_pattern(rule.pattern));
    }
  }
  std::sort(roles.begin(), roles.end());
  return roles;
}

std::vector<int> supported_degrees(const LayoutTable& table, const Geometry& geometry,
                                   const std::vector<int>& candidates) {
  std::vector<int> degrees;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(degrees),
               [&](int degree) { return table.unrepresentable(geometry, degree).empty(); });
  return degrees;
}

Layout make_layout(const LayoutName& name, const Geometry& geometry) {
  const LayoutTable& table = LayoutTable::built_in(name.table);
  for (const auto& [axis, degree] : name.axes) {
    if (axis != "tp" && degree != 1) {
      throw InvalidLayout(fmt::format("layout {}: axis {} is not carried by the table '{}' (allowed: tp)",
                                      to_string(name), axis, name.table));
    }
  }
  return table.instantiate(geometry, name.tp_degree());
}

}  // namespace shardcheck
