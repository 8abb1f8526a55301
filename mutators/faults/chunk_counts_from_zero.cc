// A chunk of prefill that takes its first token for the first of the sequence.
#include <algorithm>

#include "determinism.h"

namespace shardcheck::faults {
namespace {

class CountsFromTheChunk final : public StepsDecorator {
 public:
  CountsFromTheChunk(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t rotary_position(const StepSite& site, const RotaryPlace& place) const override {
    return inner().rotary_position(site, place) - place.step_from;
  }
};

bool begins_inside_a_sequence(const Case& c) {
  const auto is_inside = [&c](std::int64_t start) { return start < longest_sequence(c); };
  return std::ranges::any_of(c.chunks, is_inside);
}

}  // namespace

// No oracle sees it: reference and sharded run prefill whole. Between two chunks every distance is wrong.
const Fault& chunk_counts_from_zero() {
  static const Fault fault{.name = "chunk_counts_from_zero",
                           .family = 'P',
                           .level = FaultLevel::forward,
                           .claim = "Each chunk of prefill counts rotary positions from its own first token.",
                           .reports = {"faults.md"},
                           .oracles = {},
                           .law = "chunking_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(
                                     c.geometry.rope != Rope::none && begins_inside_a_sequence(c), c,
                                     "no chunk begins inside a sequence of a model with rotary positions");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<CountsFromTheChunk>,
                           .steer = [](Case& c, Stream&) { c.geometry.rope = Rope::half; }};
  return fault;
}

}  // namespace shardcheck::faults
