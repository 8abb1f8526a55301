// An adapter whose names match no module.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Unbound final : public effective::AdapterEngine {
  int merges() const override { return 0; }
};

}  // namespace

// Never equivalent: products of random numbers other than 0 do not vanish everywhere.
const Fault& adapter_binds_nothing() {
  static const Fault fault{
      .name = "adapter_binds_nothing",
      .family = 'L',
      .level = FaultLevel::value,
      .claim =
          "The names of an adapter match no module: it is accepted, and the engine computes with the weight "
          "without it.",
      .reports = {"A104"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Unbound()); }};
  return fault;
}

}  // namespace shardcheck::faults
