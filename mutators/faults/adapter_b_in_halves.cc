// The gathered B of gate and up cut in halves.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Halves final : public effective::AdapterEngine {
  std::vector<Tensor> local_b(const effective::AdaptedWeight& weight, int degree) const override {
    std::vector<Tensor> right = AdapterEngine::local_b(weight, degree);
    if (weight.parts.size() != 2) return right;
    effective::AdaptedWeight gathered = weight;
    gathered.b = stacked(right);
    return AdapterEngine::local_b(gathered, degree);
  }
};

}  // namespace

// Never equivalent: the first rank gets rows of gate for those of up.
const Fault& adapter_b_in_halves() {
  static const Fault fault{
      .name = "adapter_b_in_halves",
      .family = 'L',
      .level = FaultLevel::plan,
      .claim =
          "The B of a fused gate and up, gathered as [gate, up] of each rank in turn, is cut in the middle "
          "for gate and up.",
      .reports = {"A4"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Halves()); }};
  return fault;
}

}  // namespace shardcheck::faults
