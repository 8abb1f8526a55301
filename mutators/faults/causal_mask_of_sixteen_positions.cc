// A causal mask built for 16 positions.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr std::int64_t kMasked = 16;

class ShortMask final : public StepsDecorator {
 public:
  ShortMask(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t masked_queries(const StepSite& site, std::int64_t length) const override {
    return std::min(inner().masked_queries(site, length), kMasked);
  }
};

}  // namespace

// Never equivalent: the first query behind the mask sees a later key.
const Fault& causal_mask_of_sixteen_positions() {
  static const Fault fault{
      .name = "causal_mask_of_sixteen_positions",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim = "Queries from position 16 on see every key of their sequence.",
      .reports = {"blind spot: causal mask hard-coded to 16 positions"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (longest_sequence(c) <= kMasked + 1) return "no query behind the mask has a later key";
        if (c.target.degree("cp") > 1) return "the mask of context-parallel ranks is another";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<ShortMask>};
  return fault;
}

}  // namespace shardcheck::faults
