// The planner against gathering and splitting again, and the other laws of plans.
#include "case_input.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

const std::vector<std::string_view> kLaws = {"plan_equals_gather_then_split",
                                             "reshard_equals_gather_then_split",
                                             "reshard_composes",
                                             "there_and_back",
                                             "plan_moves_minimal_bytes",
                                             "plan_has_minimal_copies",
                                             "digest_is_layout_independent"};

constexpr Bounds kBounds{.width = 64, .layers = 4, .ranks = 16, .elements = 1 << 15};

bool layouts_keep_bits(const Case& c) {
  for (const LayoutName* name : {&c.source, &c.via, &c.target})
    if (!keeps_bits(make_layout(*name, c.geometry))) return false;
  return true;
}

void check(std::string_view input) {
  const auto c = read_case(input);
  const Law* const law = c ? law_of(*c, kLaws) : nullptr;
  if (law == nullptr || !c->fault.empty() || !is_within(kBounds, *c)) return;
  const Outcome outcome = outcome_of(*law, *c, engine_under_test);
  if (!says_failed(outcome)) return;
  // These laws speak of bytes that are moved, not of values that a layout rounds.
  if (layouts_keep_bits(*c)) report(*law, outcome);
}

std::string draw(Stream& stream) {
  const Law& law = law_named(stream.chance(1, 2) ? kLaws.front() : stream.pick(kLaws));
  return print_case(drawn_within(kBounds, [&] { return law.draw(stream); }));
}

}  // namespace

const Target& plan_differential() {
  static const Target target{.name = "plan_differential",
                             .claim =
                                 "What a plan copies is what gathering and splitting again gives, in every "
                                 "layout of every small model.",
                             .format = InputFormat::case_line,
                             .max_bytes = 4096,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
