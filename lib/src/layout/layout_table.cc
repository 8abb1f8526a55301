#include "shardcheck/layout/layout_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <span>

#include "instantiator.h"
#include "json_field.h"
#include "shardcheck/layout/embedded.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/text/nearest_name.h"
#include "table_rule.h"
#include "text/json_guard.h"

namespace shardcheck {

std::span<const EmbeddedFile> embedded_layout_tables();

namespace {

constexpr std::size_t kMaxTableBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxRules = 64;
constexpr std::string_view kNoConsumer = "none";

std::string role_of_pattern(const std::string& pattern) {
  constexpr std::string_view kLayer = "{layer}";
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

Axis parse_axis_name(const JsonField& json) {
  const std::string name = json.text();
  const auto axis = axis_from_name(name);
  if (!axis) json.fail(fmt::format("unknown mesh axis '{:.64}' (allowed: tp ep etp pp dp cp)", name));
  return *axis;
}

std::vector<Axis> parse_mesh(const JsonField& json) {
  std::vector<Axis> axes;
  for (const JsonField& field : json.elements(1, kAxes)) {
    const Axis axis = parse_axis_name(field);
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      field.fail(fmt::format("axis {} appears twice", to_string(axis)));
    }
    axes.push_back(axis);
  }
  return axes;
}

Axis parse_expert_axis(const JsonField& json, const std::vector<Axis>& mesh) {
  const Axis axis = parse_axis_name(json);
  if (std::find(mesh.begin(), mesh.end(), axis) == mesh.end()) {
    json.fail(fmt::format("axis {} is not in the table's mesh", to_string(axis)));
  }
  return axis;
}

std::string parse_consumer(const JsonField& json) {
  std::string consumer = json.text();
  std::vector<std::string> known = consumer_names();
  known.emplace_back(kNoConsumer);
  if (std::find(known.begin(), known.end(), consumer) == known.end()) {
    json.fail(fmt::format("unknown consumer '{:.64}' (known: {})", consumer, fmt::join(known, " ")));
  }
  return consumer;
}

/// Whether no layer has both rules.
bool are_apart(const TableRule& rule, const TableRule& other) {
  const auto excludes = [](const TableRule& a, const TableRule& b) {
    return !a.with().empty() && a.with() == b.without();
  };
  const bool other_layers = rule.layers() != LayerKind::every && other.layers() != LayerKind::every &&
                            rule.layers() != other.layers();
  return other_layers || excludes(rule, other) || excludes(other, rule);
}

/// Roles that two rules would hold in one layer.
std::vector<std::string> shared_roles(const TableRule& rule, const TableRule& other) {
  std::vector<std::string> shared;
  if (are_apart(rule, other) || rule.tied() || other.tied()) return shared;
  for (const std::string& role : rule.roles()) {
    if (std::find(other.roles().begin(), other.roles().end(), role) != other.roles().end()) {
      shared.push_back(role);
    }
  }
  return shared;
}

/// Throws InvalidLayout when a placement cuts over the axis that decides which ranks hold the tensor.
void require_free_axes(const JsonField& json, const TableRule& rule, Axis expert_axis) {
  const bool staged = rule.scope() != RoleScope::model || rule.stage() != Stage::every;
  const bool dealt_out = rule.scope() == RoleScope::expert && !rule.stacks_experts();
  for (const PlacementRule& placement : rule.placements()) {
    const Axis axis = placement.axis();
    if (!(staged && axis == Axis::pp) && !(dealt_out && axis == expert_axis)) continue;
    json.fail(fmt::format("placement: axis {} decides which ranks hold the tensor; allowed: another axis",
                          to_string(axis)));
  }
}

/// Throws InvalidLayout when a placement cuts over an axis that the table's mesh does not list.
void require_axes(const JsonField& json, const TableRule& rule, const std::vector<Axis>& axes) {
  for (const PlacementRule& placement : rule.placements()) {
    if (std::find(axes.begin(), axes.end(), placement.axis()) != axes.end()) continue;
    json.fail(fmt::format("placement: axis {} is not in the table's mesh", to_string(placement.axis())));
  }
}

}  // namespace

const Arrangement& LayoutEntry::arrangement() const {
  static const Arrangement plain;
  return arranged ? *arranged : plain;
}

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

Layout logical_layout(const Geometry& geometry) {
  Layout layout{{"logical", {}}, std::string(kNoConsumer), geometry, 1, {}};
  for (LogicalTensor& tensor : logical_tensors(geometry)) {
    PlacedTensor placed(tensor.name, tensor.shape, Replicate{}, 1);
    std::string name = tensor.name;
    layout.entries.push_back({std::move(name), {std::move(tensor)}, std::move(placed)});
  }
  return layout;
}

LayoutTable LayoutTable::parse(std::string_view json, const std::string& origin) {
  const nlohmann::json document = parse_json_object<InvalidLayout>(json, origin, kMaxTableBytes);
  const JsonField root(document, origin);
  root.require_object(
      {"name", "framework", "family", "consumer", "mesh", "rules"},
      {"description", "expert_axis", "expert_policy", "local_numbers", "whole_experts_with_ep"});
  LayoutTable table;
  table.origin_ = origin;
  table.name_ = parse_word(root.at("name"));
  table.framework_ = root.at("framework").text();
  table.family_ = root.at("family").text();
  if (root.has("description")) table.description_ = root.at("description").text();
  table.consumer_ = parse_consumer(root.at("consumer"));
  table.axes_ = parse_mesh(root.at("mesh"));
  if (root.has("expert_axis")) table.expert_axis_ = parse_expert_axis(root.at("expert_axis"), table.axes_);
  if (root.has("expert_policy")) {
    table.expert_policy_ = parse_choice<SplitPolicy>(
        root.at("expert_policy"), {{"even", SplitPolicy::even}, {"balanced", SplitPolicy::balanced}});
  }
  const auto flag = [&root](std::string_view key) { return root.has(key) && root.at(key).boolean(); };
  table.local_numbers_ = flag("local_numbers");
  table.whole_experts_with_ep_ = flag("whole_experts_with_ep");
  std::set<std::string> patterns;
  std::vector<TableRule> rules;
  for (const JsonField& field : root.at("rules").elements(1, kMaxRules)) {
    TableRule rule = TableRule::parse(field);
    const JsonField named = field.named(fmt::format("{} ({})", field.path(), rule.pattern()));
    require_axes(named, rule, table.axes_);
    require_free_axes(named, rule, table.expert_axis_);
    // A tied copy exists where the tensor of its own name does not.
    if (!rule.tied() && !patterns.insert(rule.pattern()).second) named.fail("two rules for this tensor");
    for (const TableRule& other : rules) {
      for (const std::string& role : shared_roles(rule, other)) {
        named.fail(fmt::format("logical: role '{}' already has the rule '{}'", role, other.pattern()));
      }
    }
    rules.push_back(std::move(rule));
  }
  table.rules_ = std::make_shared<const std::vector<TableRule>>(std::move(rules));
  return table;
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

namespace {

/// Shards record the name of their table: a name must not mean two layouts.
void require_name_of_its_own(const LayoutTable& table, std::string_view text, const std::string& origin) {
  for (const EmbeddedFile& built_in : embedded_layout_tables()) {
    if (built_in.name != table.name() + ".json") continue;
    if (nlohmann::json::parse(text) == nlohmann::json::parse(built_in.text)) return;
    throw InvalidLayout(
        fmt::format("{}: name: '{}' is a built-in table with other content; allowed: a name of its own",
                    origin, table.name()));
  }
}

}  // namespace

LayoutTable LayoutTable::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) {
    throw InvalidLayout(fmt::format("{}: cannot be opened", file.string()));
  }
  // One byte past the limit, so that parse sees and refuses a longer file.
  std::string text(kMaxTableBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  LayoutTable table = parse(text, file.string());
  require_name_of_its_own(table, text, file.string());
  return table;
}

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

Axis LayoutTable::axis_in(const LayoutName& name, Axis axis) const {
  const auto is_etp = [](const auto& one) { return one.first == to_string(Axis::etp); };
  if (axis != Axis::etp || std::any_of(name.axes.begin(), name.axes.end(), is_etp)) return axis;
  return whole_experts_with_ep_ && name.degree("ep") > 1 ? Axis::etp : Axis::tp;
}

Layout LayoutTable::instantiate(const Geometry& geometry, const LayoutName& name) const {
  validate(geometry);
  LayoutName full = name;
  full.table = name_;
  return Instantiator(*this, geometry, full).layout();
}

Layout LayoutTable::instantiate(const Geometry& geometry, int degree) const {
  LayoutName name{name_, {}};
  if (degree != 1) name.axes.emplace_back("tp", degree);
  return instantiate(geometry, name);
}

std::vector<std::string> LayoutTable::unrepresentable(const Geometry& geometry, int degree) const {
  validate(geometry);
  LayoutName name{name_, {}};
  if (degree != 1) name.axes.emplace_back("tp", degree);
  const Instantiator instantiator(*this, geometry, name);
  std::vector<std::string> roles;
  for (const TableRule& rule : *rules_) {
    if (!instantiator.is_representable(rule)) roles.push_back(role_of_pattern(rule.pattern()));
  }
  std::sort(roles.begin(), roles.end());
  return roles;
}

std::vector<int> supported_degrees(const LayoutTable& table, const Geometry& geometry,
                                   const std::vector<int>& candidates) {
  std::vector<int> degrees;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(degrees), [&](int degree) {
    return degree >= 1 && degree <= Mesh::kMaxDegree && table.unrepresentable(geometry, degree).empty();
  });
  return degrees;
}

Layout make_layout(const LayoutName& name, const Geometry& geometry) {
  return LayoutTable::built_in(name.table).instantiate(geometry, name);
}

}  // namespace shardcheck
