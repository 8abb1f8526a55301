// The process groups of a mesh: for every axis, the sets of ranks that differ in their coordinate on that
// axis alone, each with a collective of its own. A program holds some of the mesh's ranks (all of them in
// process, one under MPI), its slots; a group here lists the slots that belong to it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shardcheck/comm/collective.h"
#include "shardcheck/layout/mesh.h"

namespace shardcheck {

/// Makes the collective of one group.
using CollectiveFactory = std::function<std::unique_ptr<Collective>(int degree)>;

class MeshGroups {
 public:
  struct Group {
    Collective* collective = nullptr;
    std::vector<std::size_t> slots;  // in the order of the collective's local ranks
  };

  /// Every rank of the mesh in this process; `make` is called once for each group of each axis of the mesh,
  /// and for every rank alone where an axis has one rank.
  MeshGroups(Mesh mesh, const CollectiveFactory& make);
  /// One group along tp. The collective must outlive the groups.
  explicit MeshGroups(Collective& tensor_parallel);

  const Mesh& mesh() const noexcept { return mesh_; }
  /// Ranks of the mesh held here, ascending: one a slot.
  std::span<const int> local_ranks() const noexcept { return ranks_; }
  int coordinate(std::size_t slot, Axis axis) const { return mesh_.coordinate(ranks_[slot], axis); }
  /// Groups along an axis that have slots here; every slot is in one of them.
  std::span<const Group> along(Axis axis) const { return groups_[static_cast<std::size_t>(axis)]; }

 private:
  Mesh mesh_;
  std::vector<int> ranks_;
  std::array<std::vector<Group>, kAxes> groups_;
  std::vector<std::unique_ptr<Collective>> owned_;
};

}  // namespace shardcheck
