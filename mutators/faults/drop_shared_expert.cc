// The shared expert's slot that nothing is loaded into.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout&, const LogicalTensor& part) {
  if (part.role.starts_with("shared_")) return std::nullopt;
  return place_of(part);
}

}  // namespace

// Never equivalent: every token passes the shared expert.
const Fault& drop_shared_expert() {
  static const Fault fault{
      .name = "drop_shared_expert",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "Nothing is loaded into the slot of the shared expert, which stays zero.",
      .reports = {"A66"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_misplaced(c, origin, "there is no shared expert");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_experts(c, stream);
            c.geometry.shared_ffn = 2 * stream.integer(2, 8);
          }};
  return fault;
}

}  // namespace shardcheck::faults
