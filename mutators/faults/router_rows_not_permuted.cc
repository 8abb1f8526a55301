// Experts in another order than the router's rows.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  if (part.expert < 0) return place_of(part);
  return Place{part.layer, (part.expert + 1) % target.geometry.n_experts};
}

}  // namespace

// Never equivalent: the experts are drawn independently, and none is in its place.
const Fault& router_rows_not_permuted() {
  static const Fault fault{
      .name = "router_rows_not_permuted",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "The experts are renumbered by one and the rows of the router are not.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_experts_misplaced(c, origin, "there are no two experts");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_experts(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
