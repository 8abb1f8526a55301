// Every rank's convolution given the first channels.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {

// Never equivalent: the second rank's first channel is not the first one.
const Fault& conv_channels_not_sliced() {
  static const Fault fault{
      .name = "conv_channels_not_sliced",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim = "The convolution of a state-space layer is not sliced: every rank reads the first channels.",
      .reports = {"A73"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::state_space,
      .effective = [](const Case& c, std::string_view) {
        return effective::loaded_state_space(c, effective::FirstRows(".conv1d"));
      }};
  return fault;
}

}  // namespace shardcheck::faults
