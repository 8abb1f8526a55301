#include "instantiator.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace shardcheck {
namespace {

std::vector<std::int64_t> expert_bounds(const LayoutTable& table, const Geometry& geometry, int ranks) {
  std::vector<std::int64_t> bounds = {0};
  if (table.expert_policy() == SplitPolicy::even && geometry.n_experts % ranks != 0) {
    throw UnsupportedLayout(fmt::format("n_experts={} is not divisible by {} degree {}", geometry.n_experts,
                                        to_string(table.expert_axis()), ranks));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    bounds.push_back(part_of(table.expert_policy(), geometry.n_experts, ranks, rank).second);
  }
  return bounds;
}

int bucket_of(const std::vector<std::int64_t>& bounds, std::int64_t index) {
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), index) - bounds.begin()) - 1;
}

}  // namespace

// Source: Megatron-Core get_transformer_layer_offset, without virtual stages.
std::vector<std::int64_t> stage_bounds(std::int64_t layers, const LayoutName& name) {
  const int stages = name.degree("pp");
  const std::int64_t first = name.first_stage_layers, last = name.last_stage_layers;
  const int ends = (first > 0 ? 1 : 0) + (last > 0 ? 1 : 0);
  const std::int64_t middle = stages - ends, rest = layers - first - last;
  if (rest < 0 || (middle == 0 ? rest != 0 : rest % middle != 0) || (middle > 0 && rest < middle)) {
    throw UnsupportedLayout(fmt::format("layout {}: n_layers={} do not spread evenly over PP degree {}{}",
                                        to_string(name), layers, stages,
                                        ends > 0 ? fmt::format(" with {} and {} at the ends", first, last)
                                                 : "; first and last give the end stages another number"));
  }
  std::vector<std::int64_t> bounds = {0};
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t here = stage == 0 && first > 0           ? first
                              : stage == stages - 1 && last > 0 ? last
                                                                : rest / middle;
    bounds.push_back(bounds.back() + here);
  }
  return bounds;
}

Instantiator::Instantiator(const LayoutTable& table, const Geometry& geometry, const LayoutName& name)
    : table_(table), geometry_(geometry), name_(name), mesh_(name.mesh()), logical_(geometry) {
  for (const auto& [axis, degree] : mesh_.axes()) {
    const auto& carried = table.axes();
    if (std::find(carried.begin(), carried.end(), axis) != carried.end()) continue;
    std::vector<std::string_view> names;
    for (const Axis known : carried) names.push_back(to_string(known));
    throw InvalidLayout(fmt::format("layout {}: axis {} is not carried by the table '{}' (allowed: {})",
                                    to_string(name), to_string(axis), table.name(), fmt::join(names, " ")));
  }
  first_layer_ = stage_bounds(geometry.n_layers, name);
  first_expert_ = expert_bounds(table, geometry, mesh_.degree(table.expert_axis()));
}

void Instantiator::fail(const TableRule& rule, const std::string& why) const {
  throw InvalidLayout(fmt::format("{}: rule '{}': {}", table_.origin_, rule.pattern(), why));
}

std::vector<Instantiator::Place> Instantiator::places_of(const TableRule& rule) const {
  // A copy of a tied tensor exists where a pipeline separates its two users.
  if (rule.tied() && (!geometry_.tied || mesh_.degree(Axis::pp) == 1)) return {};
  std::vector<Place> places;
  if (rule.scope() == RoleScope::model) places.emplace_back();
  const bool each_expert = rule.scope() == RoleScope::expert && !rule.stacks_experts();
  const std::int64_t layers = rule.scope() == RoleScope::model ? 0 : geometry_.n_layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const LayerKind kind = geometry_.has_experts(layer) ? LayerKind::experts : LayerKind::dense;
    if (rule.layers() != LayerKind::every && rule.layers() != kind) continue;
    if (!each_expert) {
      places.push_back({layer, -1});
    } else if (geometry_.has_experts(layer)) {
      for (std::int64_t expert = 0; expert < geometry_.n_experts; ++expert) places.push_back({layer, expert});
    }
  }
  std::erase_if(places, [&](const Place& place) { return !applies(rule, place); });
  return places;
}

bool Instantiator::has(const std::string& role, const Place& place) const {
  const RoleScope scope = scope_of_role(role).value();
  const std::int64_t layer = scope == RoleScope::model ? -1 : place.layer;
  const std::int64_t expert = scope == RoleScope::expert ? place.expert : -1;
  return logical_.find(logical_name(role, layer, expert)).has_value();
}

bool Instantiator::applies(const TableRule& rule, const Place& place) const {
  return (rule.with().empty() || has(rule.with(), place)) &&
         (rule.without().empty() || !has(rule.without(), place));
}

std::vector<LogicalTensor> Instantiator::parts_of(const TableRule& rule, const Place& place) const {
  std::vector<LogicalTensor> parts;
  std::size_t wanted = 0;
  const auto add = [&](std::int64_t expert) {
    for (const std::string& role : rule.roles()) {
      ++wanted;
      if (const auto found = logical_.find(logical_name(role, place.layer, expert))) {
        parts.push_back(logical_[*found]);
      }
    }
  };
  if (rule.stacks_experts()) {
    for (std::int64_t expert = 0; expert < geometry_.n_experts; ++expert) add(expert);
  } else {
    add(place.expert);
  }
  if (!parts.empty() && parts.size() != wanted) {
    fail(rule, fmt::format("logical: the geometry lacks {} of the roles {}",
                           wanted - parts.size() == 1 ? "one" : "some", fmt::join(rule.roles(), " ")));
  }
  return parts;
}

Coordinates Instantiator::held(const TableRule& rule, const Place& place) const {
  Coordinates held;
  if (mesh_.degree(Axis::pp) > 1) {
    if (place.layer >= 0) held.emplace_back(Axis::pp, stage_of(place.layer));
    if (rule.stage() == Stage::first) held.emplace_back(Axis::pp, 0);
    if (rule.stage() == Stage::last) held.emplace_back(Axis::pp, mesh_.degree(Axis::pp) - 1);
  }
  if (place.expert >= 0 && mesh_.degree(table_.expert_axis()) > 1) {
    held.emplace_back(table_.expert_axis(), expert_rank(place.expert));
  }
  return held;
}

std::string Instantiator::local_name(const TableRule& rule, const Place& place) const {
  if (!table_.local_numbers() || place.layer < 0) return {};
  const std::int64_t layer = place.layer - first_layer_[static_cast<std::size_t>(stage_of(place.layer))];
  if (place.expert < 0) return rule.name(layer, -1);
  return rule.name(layer, place.expert - first_expert_[static_cast<std::size_t>(expert_rank(place.expert))]);
}

int Instantiator::stage_of(std::int64_t layer) const { return bucket_of(first_layer_, layer); }
int Instantiator::expert_rank(std::int64_t expert) const { return bucket_of(first_expert_, expert); }

Instantiator::Form Instantiator::form(const TableRule& rule, const std::string& name,
                                      const std::vector<LogicalTensor>& parts) const {
  try {
    Arrangement arrangement = rule.arrangement(geometry_, mesh_, parts);
    const Shape shape = file_shape(arrangement, parts);
    std::vector<AxisPlacement> placements;
    for (const PlacementRule& placement : rule.placements()) {
      placements.push_back({table_.axis_in(name_, placement.axis()), placement.evaluate(geometry_, mesh_)});
    }
    auto arranged =
        arrangement == Arrangement{} ? nullptr : std::make_shared<const Arrangement>(std::move(arrangement));
    return {std::move(arranged), PlacedTensor(name, shape, std::move(placements), mesh_)};
  } catch (const UnsupportedLayout& error) {
    const std::string why = error.what();
    if (why.starts_with(name)) throw;
    throw UnsupportedLayout(fmt::format("{}: {} (layout {})", name, why, to_string(name_)));
  } catch (const InvalidLayout& error) {
    fail(rule, error.what());
  }
}

LayoutEntry Instantiator::entry(const TableRule& rule, const Place& place, std::vector<LogicalTensor> parts,
                                std::vector<Form>& forms) const {
  std::string name = rule.name(place.layer, place.expert);
  const auto same_parts = [&](const Form& known) {
    const Arrangement plain;
    return known.placed.shape() == file_shape(known.arranged ? *known.arranged : plain, parts);
  };
  auto known = std::find_if(forms.begin(), forms.end(), same_parts);
  if (known == forms.end()) {
    forms.push_back(form(rule, name, parts));
    known = std::prev(forms.end());
  }
  LayoutEntry made{name, std::move(parts), known->placed.renamed(name, held(rule, place)), known->arranged};
  made.local_name = local_name(rule, place);
  made.tied = rule.tied();
  return made;
}

bool Instantiator::is_representable(const TableRule& rule) const {
  for (const Place& place : places_of(rule)) {
    const std::vector<LogicalTensor> parts = parts_of(rule, place);
    if (parts.empty()) continue;
    try {
      form(rule, rule.name(place.layer, place.expert), parts);
    } catch (const UnsupportedLayout&) {
      return false;
    }
    return true;  // every layer has the same shapes
  }
  return true;
}

Layout Instantiator::layout() const {
  Layout layout{name_, table_.consumer(), geometry_, mesh_.size(), {}, mesh_};
  for (const TableRule& rule : table_.rules()) {
    std::vector<Form> forms;
    const std::vector<Place> places = places_of(rule);
    const bool conditional = !rule.with().empty() || !rule.without().empty();
    bool found = conditional && places.empty();
    for (const Place& place : places) {
      std::vector<LogicalTensor> parts = parts_of(rule, place);
      if (parts.empty()) continue;
      found = true;
      layout.entries.push_back(entry(rule, place, std::move(parts), forms));
    }
    if (!found && !rule.optional()) {
      fail(rule, fmt::format("logical: the geometry lacks the roles {}", fmt::join(rule.roles(), " ")));
    }
  }
  require_all_held(layout);
  return layout;
}

void Instantiator::require_all_held(const Layout& layout) const {
  std::unordered_set<std::string_view> held, names;
  for (const LayoutEntry& entry : layout.entries) {
    if (!names.insert(entry.name).second) {
      throw InvalidLayout(fmt::format("{}: two rules make the tensor '{}'", table_.origin_, entry.name));
    }
    if (entry.tied) continue;
    for (const LogicalTensor& part : entry.parts) held.insert(part.name);
  }
  for (std::size_t i = 0; i < logical_.size(); ++i) {
    if (!held.contains(logical_[i].name)) {
      throw InvalidLayout(
          fmt::format("{}: no rule for the logical tensor '{}'", table_.origin_, logical_[i].name));
    }
  }
}

}  // namespace shardcheck
