#include "mesh_fault.h"

#include <algorithm>
#include <set>

namespace shardcheck::faults {
namespace {

class MisreadSource final : public SubjectDecorator {
 public:
  MisreadSource(std::shared_ptr<Subject> inner, Hits hits, Misread misread)
      : SubjectDecorator(std::move(inner)), hits_(hits), misread_(misread) {}

  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors taken_for = shards;
    for (const LayoutEntry& entry : source.entries) {
      if (hits_(entry, {})) misread_(entry, taken_for.at(entry.name));
    }
    return inner().reshard(taken_for, source, target);
  }

 private:
  Hits hits_;
  Misread misread_;
};

bool is_misplaced(const Layout& layout, PlaceOf origin, const LogicalTensor& part) {
  return part.layer >= 0 && origin(layout, part) != place_of(part);
}

/// Rank with another coordinate along the axis.
int at_coordinate(const Mesh& mesh, Axis axis, int rank, int coordinate) {
  return rank + (coordinate - mesh.coordinate(rank, axis)) * mesh.stride(axis);
}

bool gets_another(const LayoutEntry& entry, int rank, int from) {
  const PlacedTensor& placed = entry.placed;
  return placed.held_by(rank) && placed.held_by(from) && placed.selections(rank) != placed.selections(from) &&
         placed.local_shape(rank) == placed.local_shape(from) && element_count(placed.local_shape(rank)) > 0;
}

void make_even(Geometry& g) {
  const std::int64_t group = g.n_heads / g.n_kv_heads;
  g.n_kv_heads += g.n_kv_heads % 2;
  g.n_heads = g.n_kv_heads * group;
  for (std::int64_t* extent : {&g.ffn, &g.vocab, &g.expert_ffn, &g.shared_ffn}) *extent += *extent % 2;
}

/// Both layouts whole. Thresholds are measured for f32: what 16 bits round differently 19 orders need not
/// show.
void start_over(Case& c) {
  c.dtype = DType::f32;
  c.source = {};
  c.target = {};
}

void add_experts(Geometry& g, Stream& stream) {
  g.n_experts = stream.pick<std::int64_t>({4, 4, 6, 8});
  g.experts_per_token = stream.integer(2, 3);
  g.expert_ffn = 2 * stream.integer(2, 8);
  g.shared_ffn = stream.chance(1, 2) ? 2 * stream.integer(2, 8) : 0;
  g.dense_layers = stream.chance(1, 3) ? stream.integer(0, g.n_layers - 1) : 0;
  g.router_bias = stream.chance(1, 2);
}

}  // namespace

void rewrite(const Layout& target, const Rewrite& with, ShardedTensors& shards) {
  const TensorMap right = gather(shards, target);
  for (const LayoutEntry& entry : target.entries) {
    TensorMap parts;
    bool changes = false;
    for (const LogicalTensor& part : entry.parts) {
      std::optional<Tensor> other = with(part, right);
      changes = changes || other.has_value();
      parts.emplace(part.name, other ? *other : right.find(part.name)->second);
    }
    if (changes) shards.at(entry.name) = split_tensor(entry.placed, fuse(entry, parts));
  }
}

void misplace(const Layout& target, PlaceOf origin, ShardedTensors& shards) {
  rewrite(
      target,
      [&](const LogicalTensor& part, const TensorMap& right) -> std::optional<Tensor> {
        if (!is_misplaced(target, origin, part)) return std::nullopt;
        const auto from = origin(target, part);
        if (!from) return Tensor::zeros(right.find(part.name)->second.dtype(), part.shape);
        const auto found = right.find(logical_name(part.role, from->layer, from->expert));
        if (found == right.end()) return std::nullopt;  // a layer of the other kind has no such tensor
        return found->second;
      },
      shards);
}

std::optional<std::string> unless_misplaced(const Case& c, PlaceOf origin, std::string_view otherwise) {
  return unless_any(
      c,
      [&](const LayoutEntry& entry, const Layout& layout) {
        return std::ranges::any_of(
            entry.parts, [&](const LogicalTensor& part) { return is_misplaced(layout, origin, part); });
      },
      otherwise);
}

std::optional<std::string> unless_layers_misplaced(const Case& c, PlaceOf origin,
                                                   std::string_view otherwise) {
  if (has_two_kinds_of_layers(c.geometry)) return "layers of two kinds cannot take each other's weights";
  return unless_misplaced(c, origin, otherwise);
}

std::optional<std::string> unless_experts_misplaced(const Case& c, PlaceOf origin,
                                                    std::string_view otherwise) {
  if (auto reason = unless_misplaced(c, origin, otherwise)) return reason;
  const auto layout = target_layout(c);
  for (std::int64_t layer = c.geometry.dense_layers; layer < c.geometry.n_layers; ++layer) {
    std::int64_t in_place = 0;
    for (std::int64_t expert = 0; expert < c.geometry.n_experts; ++expert) {
      const LogicalTensor part{{}, "expert_down", layer, {}, expert};
      in_place += is_misplaced(*layout, origin, part) ? 0 : 1;
    }
    if (in_place < c.geometry.experts_per_token) return std::nullopt;
  }
  return "a token may be routed to experts that are in place alone";
}

void keep_earlier(const Case& c, const Layout& target, const std::function<bool(const LogicalTensor&)>& lost,
                  ShardedTensors& shards) {
  const TensorMap earlier = earlier_weights(c, dtype_of(shards));
  rewrite(
      target,
      [&](const LogicalTensor& part, const TensorMap&) -> std::optional<Tensor> {
        if (!lost(part)) return std::nullopt;
        return earlier.at(part.name);
      },
      shards);
}

std::optional<std::string> unless_lost(const Case& c, std::string_view argument, IsLost lost,
                                       std::string_view otherwise) {
  return unless_any(
      c,
      [&](const LayoutEntry& entry, const Layout& layout) {
        return std::ranges::any_of(entry.parts,
                                   [&](const LogicalTensor& part) { return lost(layout, part, argument); });
      },
      otherwise);
}

StageOf stage_of(const Layout& layout, std::int64_t layer) {
  const auto bounds = stage_bounds(layout.geometry.n_layers, layout.name);
  const auto end = std::ranges::upper_bound(bounds, layer);
  return {std::distance(bounds.begin(), end) - 1, *std::prev(end), *end};
}

std::int64_t experts_per_rank(const Layout& layout) {
  return std::max<std::int64_t>(1, layout.geometry.n_experts / layout.name.degree("ep"));
}

bool is_last_slot(const Layout& layout, const LogicalTensor& part) {
  const std::int64_t share = experts_per_rank(layout);
  return part.expert >= 0 && share > 1 && part.expert % share == share - 1;
}

bool moves_along(const LayoutEntry& entry, Axis axis, CoordinateOf coordinate) {
  const Mesh& mesh = entry.placed.mesh();
  if (mesh.degree(axis) == 1) return false;
  return std::ranges::any_of(entry.placed.holders(), [&](int rank) {
    return gets_another(entry, rank, at_coordinate(mesh, axis, rank, coordinate(mesh, axis, rank)));
  });
}

void move_along(const LayoutEntry& entry, Axis axis, CoordinateOf coordinate, std::vector<Tensor>& shards) {
  const Mesh& mesh = entry.placed.mesh();
  if (mesh.degree(axis) == 1) return;
  const std::vector<Tensor> right = shards;
  for (const int rank : entry.placed.holders()) {
    const int from = at_coordinate(mesh, axis, rank, coordinate(mesh, axis, rank));
    if (gets_another(entry, rank, from))
      shards[static_cast<std::size_t>(rank)] = right[static_cast<std::size_t>(from)];
  }
}

bool loses_shards(const Mesh& mesh, Axis axis, CoordinateOf coordinate) {
  std::set<std::pair<int, int>> given;  // group, by its rank at coordinate 0, and coordinate
  for (int rank = 0; rank < mesh.size(); ++rank)
    given.emplace(at_coordinate(mesh, axis, rank, 0), coordinate(mesh, axis, rank));
  return static_cast<int>(given.size()) < mesh.size();
}

std::optional<std::string> unless_shards_lost(const Case& c, CoordinateOf coordinate) {
  if (c.target.tp_degree() == 1) return std::string(kOneRank);
  if (auto reason = needs_layout(c)) return reason;
  if (c.target.degree("cp") > 1) return "ranks along cp that own no key compute nothing";
  if (!loses_shards(c.target.mesh(), Axis::tp, coordinate))
    return "every tensor-parallel group gets each of its shards once";
  return unless_any(
      c,
      [&](const LayoutEntry& entry, const Layout&) {
        return belongs_to(entry, "o_proj") && moves_along(entry, Axis::tp, coordinate);
      },
      "the shards of a group are alike");
}

std::shared_ptr<Subject> misread_source(std::shared_ptr<Subject> inner, Hits hits, Misread misread) {
  return std::make_shared<MisreadSource>(std::move(inner), hits, misread);
}

std::optional<std::string> unless_source_hit(const Case& c, Hits hits, std::string_view otherwise) {
  const auto source = source_layout(c);
  if (!source) return "the source layout cannot be represented";
  if (auto reason = needs_layout(c)) return reason;
  if (std::ranges::any_of(source->entries, [&](const LayoutEntry& entry) { return hits(entry, {}); }))
    return std::nullopt;
  return std::string(otherwise);
}

Tensor in_rank_order(const LayoutEntry& entry, std::span<const Tensor> shards) {
  return stacked(shards).reshaped(entry.placed.shape());
}

bool is_cut_twice_out_of_order(const LayoutEntry& entry, std::string_view) {
  const PlacedTensor& placed = entry.placed;
  if (placed.mesh().degree(Axis::tp) == 1 || placed.mesh().degree(Axis::dp) == 1) return false;
  if (std::ssize(placed.holders()) != placed.degree() || placed.is_partial()) return false;
  std::vector<Run> order;
  for (int rank = 0; rank < placed.degree(); ++rank) {
    const std::vector<Selection>& selections = placed.selections(rank);
    if (selections.size() != 1 || selections.front().dim != 0) return false;
    for (const Run& run : selections.front().runs) append_run(order, run);
  }
  return length_of(order) == placed.shape()[0] && order.size() > 1;
}

void steer_to_axes(Case& c, Stream& stream, std::vector<Axis> axes) {
  make_even(c.geometry);
  start_over(c);
  stream.shuffle(std::span(axes));
  for (const Axis axis : axes) c.target.axes.emplace_back(to_string(axis), 2);
  if (c.target.degree("pp") > 1) c.geometry.n_layers += c.geometry.n_layers % 2;
}

void steer_to_tp_beside_another(Case& c, Stream& stream) {
  const Axis other = stream.pick<Axis>({Axis::pp, Axis::pp, Axis::ep, Axis::ep, Axis::dp});
  if (other == Axis::ep) add_experts(c.geometry, stream);
  steer_to_axes(c, stream, {Axis::tp, other});
}

void steer_to_stages(Case& c, Stream& stream) {
  steer_to_axes(c, stream, stream.chance(1, 2) ? std::vector{Axis::pp} : std::vector{Axis::pp, Axis::tp});
}

void steer_to_uneven_stages(Case& c, Stream& stream) {
  const int stages = static_cast<int>(stream.integer(2, 3));
  // One layer more or fewer than the others: neither two nor three stages divide them evenly.
  const auto [first, other] = stream.pick<std::pair<int, int>>({{1, 2}, {2, 1}, {3, 2}, {2, 3}});
  start_over(c);
  c.target = {.table = stream.pick<std::string>({"seed", "seed", "seed", "megatron-llama"}),
              .axes = {{"pp", stages}},
              .first_stage_layers = first};
  c.geometry.n_layers = first + (stages - 1) * other;
}

void steer_to_experts(Case& c, Stream& stream) {
  add_experts(c.geometry, stream);
  steer_to_axes(c, stream, stream.chance(1, 2) ? std::vector<Axis>{} : std::vector{Axis::tp});
  c.target.table = stream.pick<std::string>({"seed", "hf-moe", "megatron-moe", "vllm-moe"});
}

void steer_to_expert_ranks(Case& c, Stream& stream) {
  const int ranks = static_cast<int>(stream.integer(2, 3));
  const std::int64_t share = stream.integer(2, 3);
  add_experts(c.geometry, stream);
  steer_to_axes(c, stream, stream.chance(1, 2) ? std::vector<Axis>{} : std::vector{Axis::tp});
  c.geometry.n_experts = ranks * share;
  c.geometry.experts_per_token = share + 1;
  c.target.axes.emplace_back("ep", ranks);
  stream.shuffle(std::span(c.target.axes));
  if (stream.chance(1, 4)) c.target.table = stream.pick<std::string>({"megatron-moe", "vllm-moe"});
}

void steer_to_cut_experts(Case& c, Stream& stream) {
  add_experts(c.geometry, stream);
  steer_to_axes(c, stream, {Axis::tp});
  c.target.table = stream.pick<std::string>({"seed", "hf-moe", "megatron-moe", "vllm-moe", "megatron-moe"});
  if (c.target.table != "megatron-moe" || stream.chance(1, 2)) return;
  c.target.axes = {{"ep", 2}, {"etp", 2}};
  stream.shuffle(std::span(c.target.axes));
}

}  // namespace shardcheck::faults
