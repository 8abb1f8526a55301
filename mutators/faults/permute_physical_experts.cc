// Experts dealt out round robin to ranks that expect neighbours.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

/// Slot i of rank r gets expert i * ranks + r.
std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  if (part.expert < 0) return place_of(part);
  const std::int64_t share = experts_per_rank(target);
  return Place{part.layer, part.expert % share * target.name.degree("ep") + part.expert / share};
}

}  // namespace

// Never equivalent: the experts are drawn independently, and every token meets a wrong one.
const Fault& permute_physical_experts() {
  static const Fault fault{
      .name = "permute_physical_experts",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim =
          "Experts are dealt out to the ranks one by one where each rank is asked for a block of neighbours: "
          "the "
          "map from slots to experts is ignored.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_experts_misplaced(c, origin,
                                        "one rank, or one expert on each: both orders are the same");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_expert_ranks(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
