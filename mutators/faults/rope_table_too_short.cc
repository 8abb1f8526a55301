// A rotary table with fewer rows than the sequences have positions.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr std::int64_t kRows = 16;

class ShortTable final : public StepsDecorator {
 public:
  ShortTable(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t rotary_position(const StepSite& site, const RotaryPlace& place) const override {
    return std::min(inner().rotary_position(site, place), kRows - 1);
  }
};

}  // namespace

// Never equivalent: the token behind the last row is turned as far as the one before it.
const Fault& rope_table_too_short() {
  static const Fault fault{
      .name = "rope_table_too_short",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim = "Tokens from position 16 on are turned by the angles of position 15.",
      .reports = {"faults.md"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (longest_sequence(c) <= kRows) return "no token stands behind the table's end";
        return needs_rope(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<ShortTable>};
  return fault;
}

}  // namespace shardcheck::faults
