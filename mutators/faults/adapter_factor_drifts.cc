// The factor that every rank holds stepped by each rank's own gradient.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Drifts final : public effective::AdapterEngine {
  Tensor stepped_a(const effective::AdaptedWeight& weight) const override {
    Tensor a = weight.a;
    const auto values = a.mutable_f32();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += weight.updates.front().f32()[i];
    return a;
  }
};

}  // namespace

// Never equivalent: steps of 1 or -1 on the other ranks do not cancel everywhere.
const Fault& adapter_factor_drifts() {
  static const Fault fault{
      .name = "adapter_factor_drifts",
      .family = 'L',
      .level = FaultLevel::gradient,
      .claim =
          "The factor of an adapter that ranks hold together takes each rank's own step in place of their "
          "sum, and the copy of the first rank is exported.",
      .reports = {"A98"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Drifts()); }};
  return fault;
}

}  // namespace shardcheck::faults
