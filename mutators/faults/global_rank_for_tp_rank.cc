// The rank in the whole job where the rank in the tensor parallel group belongs.
#include <algorithm>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

int modulo(const Mesh& mesh, Axis axis, int rank) { return rank % mesh.degree(axis); }
int clamped(const Mesh& mesh, Axis axis, int rank) { return std::min(rank, mesh.degree(axis) - 1); }

CoordinateOf coordinate_by(std::string_view argument) { return argument == "modulo" ? modulo : clamped; }

void damage(const Case&, const Layout& target, std::string_view argument, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries)
    move_along(entry, Axis::tp, coordinate_by(argument), shards.at(entry.name));
}

}  // namespace

// Never equivalent: a shard that a group gets twice displaces one that it lacks.
const Fault& global_rank_for_tp_rank() {
  static const Fault fault{.name = "global_rank_for_tp_rank",
                           .family = 'R',
                           .level = FaultLevel::plan,
                           .claim =
                               "A rank takes its number in the whole job, modulo the tensor parallel degree "
                               "or bounded by it, for its "
                               "number in the tensor parallel group.",
                           .reports = {"A43"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {"clamped", "modulo"},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_shards_lost(c, coordinate_by(argument));
                               },
                           .equivalent = nullptr,
                           .inject = with_damage<damage>,
                           .meshes = true,
                           .steer = steer_to_tp_beside_another};
  return fault;
}

}  // namespace shardcheck::faults
