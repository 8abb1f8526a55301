// The first factor used for all parts of a fused adapter.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Shares final : public effective::AdapterEngine {
  std::int64_t part_of(const std::vector<std::int64_t>&, std::int64_t) const override { return 0; }
};

}  // namespace

// Never equivalent: up has a random factor other than that of gate.
const Fault& adapter_factor_of_first_slice() {
  static const Fault fault{
      .name = "adapter_factor_of_first_slice",
      .family = 'L',
      .level = FaultLevel::plan,
      .claim =
          "The parts of a fused adapter have a factor each, and the engine takes them for one that they "
          "share: the first.",
      .reports = {"A95"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Shares()); }};
  return fault;
}

}  // namespace shardcheck::faults
