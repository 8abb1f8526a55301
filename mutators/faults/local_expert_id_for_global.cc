// A rank's own numbers of its experts taken for those of the model: every rank loads the first rank's
// experts.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  return Place{part.layer, part.expert < 0 ? part.expert : part.expert % experts_per_rank(target)};
}

}  // namespace

// Never equivalent: the experts are drawn independently, and every token meets a wrong one.
const Fault& local_expert_id_for_global() {
  static const Fault fault{
      .name = "local_expert_id_for_global",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim =
          "Every expert parallel rank loads the experts that have its local numbers, from 0 on, in the whole "
          "model.",
      .reports = {"A4"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_experts_misplaced(c, origin, "one rank has all experts under their own numbers");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_expert_ranks(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
