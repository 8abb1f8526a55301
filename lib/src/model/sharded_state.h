// What a ShardedModel holds: how it runs, and the weights of its slots.
#pragma once

#include <memory>
#include <vector>

#include "model/rank_weights.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {

struct ShardedModel::State {
  State(Geometry g, const Consumer& used_consumer, std::shared_ptr<const MeshGroups> used_groups,
        Numerics used_numerics, const ForwardSteps& used_steps, Execution used_execution);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Reads every slot's weights: one source a slot.
  void load(const std::vector<std::unique_ptr<RankSource>>& sources);

  std::size_t slots() const { return places.size(); }
  int stages() const { return groups.mesh().degree(Axis::pp); }
  int tp_degree() const { return groups.mesh().degree(Axis::tp); }
  bool sequence_parallel() const { return execution.sequence_parallel && tp_degree() > 1; }
  bool is_active(std::size_t slot, int stage) const { return places[slot].pp == stage; }
  /// visit(group) for the groups along an axis, not pp, that are of a stage.
  template <typename Visit>
  void for_each_group(Axis axis, int stage, const Visit& visit) const {
    for (const MeshGroups::Group& group : groups.along(axis)) {
      if (is_active(group.slots.front(), stage)) visit(group);
    }
  }
  std::int64_t hidden_leaf() const { return numerics.contract.leaf_d_model; }

  /// Of this model and no other, also of none made where this one lay.
  std::shared_ptr<const void> identity = std::make_shared<char>();
  Geometry geometry;
  const Consumer& consumer;
  std::shared_ptr<const MeshGroups> held_groups;  // owned where the model made them, else the caller's
  const MeshGroups& groups;
  Numerics numerics;
  const ForwardSteps& steps;
  Execution execution;
  std::vector<RankPlace> places;   // by slot
  std::vector<RankWeights> ranks;  // by slot

 private:
  RankPlace place_of(std::size_t slot) const;
  void require_execution() const;
  void load_row_parallel(const std::vector<std::unique_ptr<RankSource>>& sources, std::int64_t layer);
};

}  // namespace shardcheck
