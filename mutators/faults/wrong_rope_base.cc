// Rotary angles of another base than the model's.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr double kUsual = 10000.0, kLong = 500000.0;

class WrongBase final : public StepsDecorator {
 public:
  WrongBase(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  double rope_theta(const StepSite& site) const override {
    return inner().rope_theta(site) == kUsual ? kLong : kUsual;
  }
};

}  // namespace

const Fault& wrong_rope_base() {
  static const Fault fault{.name = "wrong_rope_base",
                           .family = 'P',
                           .level = FaultLevel::forward,
                           .claim =
                               "The rotary angles have the usual base 10000 instead of the model's, or "
                               "500000 where 10000 is right.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = [](const Case& c, std::string_view) { return needs_rope(c); },
                           .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
                             if (c.geometry.rotary_width() == 2)
                               return "one pair turns at the same rate whatever the base";
                             if (longest_sequence(c) == 1)
                               return "position zero turns by the angle zero at any base";
                             return std::nullopt;
                           },
                           .inject = with_steps<WrongBase>};
  return fault;
}

}  // namespace shardcheck::faults
