// The first layer of a stage computed as if all stages were equally long.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  const std::int64_t layers = target.geometry.n_layers;
  const StageOf at = stage_of(target, part.layer);
  const std::int64_t layer = at.stage * (layers / target.name.degree("pp")) + part.layer - at.first;
  if (layer >= layers) return std::nullopt;
  return Place{layer, part.expert};
}

}  // namespace

// Never equivalent: the layers are drawn independently.
const Fault& pipeline_offset_from_equal_stages() {
  static const Fault fault{
      .name = "pipeline_offset_from_equal_stages",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim =
          "A stage counts its layers from stage * layers / stages on, although the first or the last stage "
          "has "
          "another number of layers.",
      .reports = {"A68"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_layers_misplaced(c, origin, "all stages are equally long");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = steer_to_uneven_stages};
  return fault;
}

}  // namespace shardcheck::faults
