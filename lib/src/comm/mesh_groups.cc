#include "shardcheck/comm/mesh_groups.h"

#include <numeric>
#include <utility>

namespace shardcheck {
namespace {

constexpr std::array<Axis, kAxes> kAllAxes = {Axis::tp, Axis::ep, Axis::etp, Axis::pp, Axis::dp, Axis::cp};

}  // namespace

MeshGroups::MeshGroups(Mesh mesh, const CollectiveFactory& make)
    : mesh_(std::move(mesh)), ranks_(static_cast<std::size_t>(mesh_.size())) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  for (const Axis axis : kAllAxes) {
    const int degree = mesh_.degree(axis), stride = mesh_.stride(axis);
    for (const int first : ranks_) {
      if (mesh_.coordinate(first, axis) != 0) continue;
      Group group;
      for (int i = 0; i < degree; ++i) group.slots.push_back(static_cast<std::size_t>(first + i * stride));
      owned_.push_back(make(degree));
      group.collective = owned_.back().get();
      groups_[static_cast<std::size_t>(axis)].push_back(std::move(group));
    }
  }
}

MeshGroups::MeshGroups(Collective& tensor_parallel)
    : mesh_(Mesh::tensor_parallel(tensor_parallel.degree())),
      ranks_(tensor_parallel.local_ranks().begin(), tensor_parallel.local_ranks().end()) {
  std::vector<std::size_t> slots(ranks_.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  for (const Axis axis : kAllAxes) {
    auto& groups = groups_[static_cast<std::size_t>(axis)];
    if (axis == Axis::tp) {
      groups.push_back({&tensor_parallel, slots});
      continue;
    }
    for (const std::size_t slot : slots) {
      owned_.push_back(make_in_process_collective(1));
      groups.push_back({owned_.back().get(), {slot}});
    }
  }
}

}  // namespace shardcheck
