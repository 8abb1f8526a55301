// A stack of layers of experts read as a stack of experts of layers.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  const Geometry& g = target.geometry;
  if (part.expert < 0) return place_of(part);
  const std::int64_t layers = g.n_layers - g.dense_layers;
  const std::int64_t position = (part.layer - g.dense_layers) * g.n_experts + part.expert;
  return Place{g.dense_layers + position % layers, position / layers};
}

}  // namespace

// Never equivalent: the experts are drawn independently, and every token meets a wrong one.
const Fault& stacked_experts_nested_wrong() {
  static const Fault fault{
      .name = "stacked_experts_nested_wrong",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim =
          "A stack with experts outside and layers inside is read with layers outside and experts inside.",
      .reports = {"A67"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_experts_misplaced(c, origin, "one layer of experts: both nestings are the same");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_experts(c, stream);
            c.geometry.n_layers = c.geometry.dense_layers + stream.integer(2, 3);
          }};
  return fault;
}

}  // namespace shardcheck::faults
