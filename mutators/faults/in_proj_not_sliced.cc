// Every rank's input projection given the first rows.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {

// Never equivalent: the second rank's first row is not the first one.
const Fault& in_proj_not_sliced() {
  static const Fault fault{.name = "in_proj_not_sliced",
                           .family = 'H',
                           .level = FaultLevel::plan,
                           .claim =
                               "The fused input projection of a state-space layer is not sliced: every rank "
                               "reads the first rows of the whole.",
                           .reports = {"A72"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::state_space,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::loaded_state_space(c, effective::FirstRows(".in_proj"));
                           }};
  return fault;
}

}  // namespace shardcheck::faults
