// Layers of the remainder that every stage leaves to another one to load.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  const int stages = target.name.degree("pp");
  if (part.layer >= target.geometry.n_layers / stages * stages) return std::nullopt;
  return place_of(part);
}

}  // namespace

// Never equivalent: a layer without weights adds nothing to the residual.
const Fault& leave_remainder_layers_zero() {
  static const Fault fault{
      .name = "leave_remainder_layers_zero",
      .family = 'P',
      .level = FaultLevel::plan,
      .claim = "Only floor(layers / stages) layers for each stage are loaded, and the last layers stay zero.",
      .reports = {"A93", "A94"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_misplaced(c, origin, "the stages divide the layers");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = steer_to_uneven_stages};
  return fault;
}

}  // namespace shardcheck::faults
