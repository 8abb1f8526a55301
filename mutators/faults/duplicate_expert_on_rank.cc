// Two slots of a rank filled with one expert.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  return Place{part.layer, part.expert - (is_last_slot(target, part) ? 1 : 0)};
}

}  // namespace

// Never equivalent: the experts are drawn independently.
const Fault& duplicate_expert_on_rank() {
  static const Fault fault{
      .name = "duplicate_expert_on_rank",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "The last expert slot of every rank is filled with the expert of the slot before.",
      .reports = {"A63"},
      .oracles = {Oracle::layout},  // no token need be routed to the expert that is missing
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_misplaced(c, origin, "no rank has two experts");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_expert_ranks(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
