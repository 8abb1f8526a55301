// An adapter applied to a weight that has it already.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Twice final : public effective::AdapterEngine {
  int merges() const override { return 2; }
};

}  // namespace

// Never equivalent: products of random numbers other than 0 do not vanish everywhere.
const Fault& adapter_merged_twice() {
  static const Fault fault{
      .name = "adapter_merged_twice",
      .family = 'L',
      .level = FaultLevel::value,
      .claim = "The weight that is delivered has its adapter merged, and the engine adds the adapter again.",
      .reports = {"A99"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Twice()); }};
  return fault;
}

}  // namespace shardcheck::faults
