#include "model/sharded_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

constexpr std::array<Axis, 2> kNotExecuted = {Axis::etp, Axis::dp};

/// Layers at which stages end but the last one's, as even as can be.
std::vector<std::int64_t> even_stages(std::int64_t layers, int stages) {
  std::vector<std::int64_t> ends;
  for (int stage = 1; stage < stages; ++stage) ends.push_back(layers * stage / stages);
  return ends;
}

std::vector<std::int64_t> block_ends(std::int64_t key_block, int degree) {
  std::vector<std::int64_t> ends;
  for (int rank = 1; rank < degree; ++rank) ends.push_back(key_block * rank);
  return ends;
}

/// Throws unless `ends` are one fewer than `degree`, ascending from `low`, below `high`, multiples of `unit`.
void require_ends(std::string_view what, const std::vector<std::int64_t>& ends, int degree, std::int64_t low,
                  std::int64_t high, std::int64_t unit) {
  const bool counted = std::ssize(ends) == degree - 1;
  std::int64_t before = low - 1;
  bool fits = counted;
  for (const std::int64_t end : ends) {
    fits = fits && end > before && end < high && end % unit == 0;
    before = end;
  }
  if (fits) return;
  throw UnsupportedLayout(
      fmt::format("{} {} do not cut for {} ranks: allowed are {} ascending multiples of {} in {}..{}", what,
                  fmt::join(ends, ","), degree, degree - 1, unit, low, high - 1));
}

using Sources = std::vector<std::unique_ptr<RankSource>>;

/// One row-parallel layer's weights on the slots of a group. Under exact the ranks agree on the tops of the
/// rows they hold parts of, so that sums merge as plain words.
std::vector<LinearWeights> agreed_weights(const Sources& sources, const MeshGroups::Group& group,
                                          TensorRole role, Arithmetic arithmetic) {
  std::vector<std::vector<std::int32_t>> tops(group.slots.size());
  if (arithmetic == Arithmetic::exact) {
    std::vector<std::span<std::int32_t>> buffers;
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      tops[i] = weight_tops(sources[group.slots[i]]->rows(role));
      buffers.emplace_back(tops[i]);
    }
    group.collective->all_reduce_max_i32(buffers);
  }
  std::vector<LinearWeights> weights;
  for (std::size_t i = 0; i < group.slots.size(); ++i)
    weights.push_back(sources[group.slots[i]]->linear(role, tops[i]));
  return weights;
}

}  // namespace

ShardedModel::State::State(Geometry g, const Consumer& used_consumer,
                           std::shared_ptr<const MeshGroups> used_groups, Numerics used_numerics,
                           const ForwardSteps& used_steps, Execution used_execution)
    : geometry(g),
      consumer(used_consumer),
      held_groups(std::move(used_groups)),
      groups(*held_groups),
      numerics(std::move(used_numerics)),
      steps(used_steps),
      execution(std::move(used_execution)) {
  if (execution.context_ends.empty())
    execution.context_ends = block_ends(numerics.contract.key_block, groups.mesh().degree(Axis::cp));
  if (execution.stage_ends.empty()) execution.stage_ends = even_stages(geometry.n_layers, stages());
  require_execution();
  for (std::size_t slot = 0; slot < groups.local_ranks().size(); ++slot) places.push_back(place_of(slot));
}

void ShardedModel::State::require_execution() const {
  const Mesh& mesh = groups.mesh();
  consumer.require_supported(geometry, tp_degree());
  for (const Axis axis : kNotExecuted) {
    if (mesh.degree(axis) > 1)
      throw UnsupportedLayout(
          fmt::format("{}={}: no forward pass runs over this axis; allowed: tp, pp, cp and ep",
                      to_string(axis), mesh.degree(axis)));
  }
  if (numerics.arithmetic == Arithmetic::exact && tp_degree() > ExactPartial::kMaxRanks)
    throw UnsupportedLayout(
        fmt::format("TP degree {}: arithmetic exact merges the sums of so many ranks; allowed: 1..{}",
                    tp_degree(), ExactPartial::kMaxRanks));
  if (stages() > geometry.n_layers)
    throw UnsupportedLayout(fmt::format("pp={}: {} layers do not give every stage one; allowed: 1..{}",
                                        stages(), geometry.n_layers, geometry.n_layers));
  require_ends("stage_ends", execution.stage_ends, stages(), 1, geometry.n_layers, 1);
  constexpr std::int64_t kAnyPosition = std::int64_t{1} << 40;
  require_ends("context_ends", execution.context_ends, mesh.degree(Axis::cp), 1, kAnyPosition,
               numerics.contract.key_block);
}

RankPlace ShardedModel::State::place_of(std::size_t slot) const {
  const Mesh& mesh = groups.mesh();
  const std::vector<std::int64_t>& ends = execution.stage_ends;
  RankPlace place;
  place.rank = groups.local_ranks()[slot];
  place.tp_degree = tp_degree();
  place.tp = groups.coordinate(slot, Axis::tp);
  place.pp = groups.coordinate(slot, Axis::pp);
  place.cp = groups.coordinate(slot, Axis::cp);
  place.ep_degree = mesh.degree(Axis::ep);
  place.ep = groups.coordinate(slot, Axis::ep);
  place.first_stage = place.pp == 0;
  place.last_stage = place.pp == stages() - 1;
  const auto stage = static_cast<std::size_t>(place.pp);
  place.first_layer = place.first_stage ? 0 : ends[stage - 1];
  place.last_layer = place.last_stage ? geometry.n_layers : ends[stage];
  std::tie(place.first_expert, place.last_expert) =
      consumer.local_experts(geometry, place.ep_degree, place.ep);
  place.tied = geometry.tied;
  place.extent = consumer.extent(geometry, place.tp_degree, place.tp);
  return place;
}

void ShardedModel::State::load(const Sources& sources) {
  for (std::size_t slot = 0; slot < sources.size(); ++slot) {
    const RankPlace& place = places[slot];
    const StepSite site{geometry, numerics.contract, numerics.arithmetic, tp_degree(), place.tp, -1};
    ranks.emplace_back(geometry, place, *sources[slot], steps.first_head(site, place.extent));
  }
  for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) load_row_parallel(sources, layer);
}

void ShardedModel::State::load_row_parallel(const Sources& sources, std::int64_t layer) {
  for (const MeshGroups::Group& group : groups.along(Axis::tp)) {
    const RankPlace& place = places[group.slots.front()];
    if (layer < place.first_layer || layer >= place.last_layer) continue;
    const auto load = [&](TensorRole role, const std::function<LinearWeights&(LayerWeights&)>& member) {
      auto weights = agreed_weights(sources, group, role, numerics.arithmetic);
      for (std::size_t i = 0; i < group.slots.size(); ++i)
        member(ranks[group.slots[i]].layer(layer)) = std::move(weights[i]);
    };
    load({"o_proj", layer}, [](LayerWeights& w) -> LinearWeights& { return w.o_proj; });
    if (!geometry.has_experts(layer)) {
      load({"down", layer}, [](LayerWeights& w) -> LinearWeights& { return w.dense->down; });
      continue;
    }
    for (std::int64_t expert = place.first_expert; expert < place.last_expert; ++expert) {
      const auto own = static_cast<std::size_t>(expert - place.first_expert);
      load({"expert_down", layer, expert},
           [own](LayerWeights& w) -> LinearWeights& { return w.experts->own[own].down; });
    }
    if (geometry.shared_ffn > 0)
      load({"shared_down", layer}, [](LayerWeights& w) -> LinearWeights& { return w.experts->shared->down; });
  }
}

}  // namespace shardcheck
