// Experts under names that the loader does not know.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool is_lost(const Layout&, const LogicalTensor& part, std::string_view argument) {
  if (argument == "gate_up") return part.role == "expert_gate" || part.role == "expert_up";
  return part.role.starts_with("expert_");
}

}  // namespace

// Never equivalent: two seeds draw different weights, and every token has an expert.
const Fault& skip_experts() {
  static const Fault fault{.name = "skip_experts",
                           .family = 'E',
                           .level = FaultLevel::sync,
                           .claim =
                               "The names of the experts' weights, or of their fused gate and up, match "
                               "nothing and they keep what they were initialised with.",
                           .reports = {"A64", "A65"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {"all", "gate_up"},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_lost(c, argument, is_lost, "there are no experts");
                               },
                           .equivalent = nullptr,
                           .inject = loses<is_lost>,
                           .meshes = true,
                           .steer = steer_to_experts};
  return fault;
}

}  // namespace shardcheck::faults
