// A pipeline that hands the hidden state over in fewer bits.
#include <bit>

#include "determinism.h"

namespace shardcheck::faults {
namespace {

class StageBoundaryRoundsResidual final : public StepsDecorator {
 public:
  StageBoundaryRoundsResidual(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  void at_stage_boundary(const StepSite& /*site*/, std::span<float> x) const override {
    // One bit less than bf16 keeps, so that it also shows where activations are bf16 already.
    for (float& value : x) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xfffe0000U);
  }
};

}  // namespace

// The law pipeline_split_is_invisible sees it.
const Fault& stage_boundary_rounds_residual() {
  static const Fault fault{.name = "stage_boundary_rounds_residual",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim = "A pipeline stage hands the hidden state over with 6 bits of mantissa.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "pipeline_split_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(c.target.degree("pp") > 1, c, "there is one stage");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<StageBoundaryRoundsResidual>};
  return fault;
}

}  // namespace shardcheck::faults
