// A row-parallel bias that every rank adds to its partial sum.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class CountedByEveryRank final : public StepsDecorator {
 public:
  CountedByEveryRank(const ForwardSteps& inner, std::string_view role) : StepsDecorator(inner), role_(role) {}
  void before_bias(const StepSite& site, std::string_view role, std::span<float> bias) const override {
    inner().before_bias(site, role, bias);
    if (role != role_) return;
    for (float& value : bias) value *= static_cast<float>(site.degree);
  }

 private:
  std::string role_;
};

}  // namespace

// Never equivalent: random biases are not zero.
const Fault& bias_added_on_each_rank() {
  static const Fault fault{
      .name = "bias_added_on_each_rank",
      .family = 'B',
      .level = FaultLevel::forward,
      .claim = "The bias of a row-parallel layer is added before the sum, as often as there are ranks.",
      .reports = {"A45", "A48"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {"o_proj", "down"},
      .not_applicable = [](const Case& c, std::string_view role) -> std::optional<std::string> {
        const Geometry& g = c.geometry;
        const bool has_bias = role == "o_proj" ? g.o_bias : g.mlp_bias && !g.has_experts(0);
        if (!has_bias) return "the layer has no bias";
        return needs_ranks(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<CountedByEveryRank>,
      .steer = give_row_biases};
  return fault;
}

}  // namespace shardcheck::faults
