// Ranks numbered along the axes of the mesh from the wrong end.
#include <algorithm>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

int from_the_other_end(const Mesh& mesh, Axis axis, int rank) {
  auto axes = mesh.axes();
  std::ranges::reverse(axes);
  return Mesh(std::move(axes)).coordinate(rank, axis);
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries)
    move_along(entry, Axis::tp, from_the_other_end, shards.at(entry.name));
}

}  // namespace

// Never equivalent: a shard that a group gets twice displaces one that it lacks.
const Fault& swap_mesh_axis_order() {
  static const Fault fault{
      .name = "swap_mesh_axis_order",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim =
          "Tensor parallel shards are handed out as if the innermost axis of the mesh were the outermost and "
          "the outermost the innermost.",
      .reports = {"A42"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c,
                           std::string_view) { return unless_shards_lost(c, from_the_other_end); },
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .meshes = true,
      .steer = steer_to_tp_beside_another};
  return fault;
}

}  // namespace shardcheck::faults
