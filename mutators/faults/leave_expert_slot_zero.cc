// An expert slot that nothing is loaded into.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  return is_last_slot(target, part) ? std::nullopt : std::optional(place_of(part));
}

}  // namespace

// Never equivalent: random weights are not zero.
const Fault& leave_expert_slot_zero() {
  static const Fault fault{
      .name = "leave_expert_slot_zero",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim =
          "A rank fills the first of its expert slots alone when it looks an expert up, so that its last "
          "slot stays zero.",
      .reports = {"A63"},
      .oracles = {Oracle::layout},  // no token need be routed to the expert of the slot
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
