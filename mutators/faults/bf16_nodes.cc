// Partial sums kept in bf16: the same bits at every degree, and far from the exact sum.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class NarrowNodes final : public StepsDecorator {
 public:
  NarrowNodes(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool ships_leaves(const StepSite& /*site*/) const override { return true; }
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner().after_partial(site, role, partial);
    for (float& value : partial) value = bf16_to_f32(f32_to_bf16(value));
  }
};

}  // namespace

// Never equivalent: thousands of partial sums lose 16 bits.
const Fault& bf16_nodes() {
  static const Fault fault{
      .name = "bf16_nodes",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The partial sums of a row-parallel layer are rounded to bf16 before they are added.",
      .reports = {"seed 003"},
      .oracles = {Oracle::tree},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype == DType::bf16) return "activations of bf16 may round both sums alike";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<NarrowNodes>};
  return fault;
}

}  // namespace shardcheck::faults
