// Slopes of ALiBi that every rank takes from the first head on.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class SlopesFromTheStart final : public StepsDecorator {
 public:
  SlopesFromTheStart(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t first_head(const StepSite&, const LocalExtent&) const override { return 0; }
};

}  // namespace

const Fault& alibi_slopes_from_head_zero() {
  static const Fault fault{
      .name = "alibi_slopes_from_head_zero",
      .family = 'N',
      .level = FaultLevel::forward,
      .claim = "Every rank gives its heads the slopes of the model's first heads.",
      .reports = {"A54", "A55"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (!c.geometry.alibi) return "the model has no ALiBi";
        return needs_ranks(c);
      },
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (longest_sequence(c) == 1) return "at a distance of zero every slope adds zero";
        return std::nullopt;
      },
      .inject = with_steps<SlopesFromTheStart>,
      .steer = [](Case& c, Stream&) { c.geometry.alibi = true; }};
  return fault;
}

}  // namespace shardcheck::faults
