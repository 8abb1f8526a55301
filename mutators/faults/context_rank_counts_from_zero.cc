// A context-parallel rank that takes its first token for the first of the sequence.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class CountsFromItsFirst final : public StepsDecorator {
 public:
  CountsFromItsFirst(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t rotary_position(const StepSite& site, const RotaryPlace& place) const override {
    return inner().rotary_position(site, place) - place.held_from;
  }
};

}  // namespace

// Never equivalent: between two ranks every distance is wrong.
const Fault& context_rank_counts_from_zero() {
  static const Fault fault{
      .name = "context_rank_counts_from_zero",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim = "Each context-parallel rank counts rotary positions from its own first token.",
      .reports = {"A42"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.target.degree("cp") == 1) return "one rank holds every position";
        const std::int64_t first_end = c.context_ends.empty() ? c.key_block : c.context_ends.front();
        if (longest_sequence(c) <= first_end) return "the first context rank holds every position";
        return needs_rope(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<CountsFromItsFirst>,
      .steer =
          [](Case& c, Stream&) {
            use_seed_tables(c);
            run_over(c, "cp");
            c.geometry.rope = Rope::half;
            c.key_block = 8;
            c.length = 20;
            c.lengths.clear();
          }};
  return fault;
}

}  // namespace shardcheck::faults
