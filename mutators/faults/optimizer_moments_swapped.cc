// The two moments of the optimiser exchanged.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

ShardedTensors swapped(const Case& c, std::string_view) {
  ShardedTensors state = effective::moved_state(c, effective::StateMove());
  for (auto& [name, ranks] : state) {
    if (name.ends_with(".exp_avg")) std::swap(ranks, state.at(name + "_sq"));
  }
  return state;
}

}  // namespace

// Never equivalent: no element of one moment is one of the other.
const Fault& optimizer_moments_swapped() {
  static const Fault fault{
      .name = "optimizer_moments_swapped",
      .family = 'K',
      .level = FaultLevel::value,
      .claim = "The second moment of the optimiser is delivered as the first and the first as the second.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::optimizer,
      .effective = swapped};
  return fault;
}

}  // namespace shardcheck::faults
