// Rotary pairs (2j, 2j + 1) where the weights expect (j, j + head_dim / 2).
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class InterleavedPairs final : public StepsDecorator {
 public:
  InterleavedPairs(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool rope_is_half_split(const StepSite& site) const override { return !inner().rope_is_half_split(site); }
};

}  // namespace

const Fault& rope_interleaved_for_half() {
  static const Fault fault{
      .name = "rope_interleaved_for_half",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim =
          "The rotary embedding turns neighbouring dimensions where the weights pair the two halves of a "
          "head.",
      .reports = {"A21", "A22", "A23"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.rope == Rope::none) return "the model has no rotary embedding";
        return needs_layout(c);
      },
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.rotary_width() == 2) return "two rotated dimensions are one pair in either order";
        if (longest_sequence(c) == 1) return "position zero turns by the angle zero in either order";
        return std::nullopt;
      },
      .inject = with_steps<InterleavedPairs>};
  return fault;
}

}  // namespace shardcheck::faults
