// Stages whose ranges of layers include both ends.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  const StageOf at = stage_of(target, part.layer);
  const bool begins_a_later_stage = at.stage > 0 && part.layer == at.first;
  return Place{part.layer - (begins_a_later_stage ? 1 : 0), part.expert};
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& duplicate_boundary_layer() {
  static const Fault fault{
      .name = "duplicate_boundary_layer",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim =
          "The first layer of every later stage holds the last layer of the stage before, which both of them "
          "run.",
      .reports = {"A68"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_layers_misplaced(c, origin, "one stage: no layer is at a boundary");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_stages(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
