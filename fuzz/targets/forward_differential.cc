// Sharded logits against the unsharded reference, bit for bit.
#include "case_input.h"

namespace shardcheck::fuzz::targets {
namespace {

const std::vector<std::string_view> kLaws = {"sharded_equals_reference", "mesh_equals_reference"};

constexpr Bounds kBounds{
    .width = 96, .layers = 4, .ranks = 8, .elements = 1 << 19, .tokens = 64, .multiply_adds = 0x1p23};

void check(std::string_view input) {
  const auto c = read_case(input);
  const Law* const law = c ? law_of(*c, kLaws) : nullptr;
  if (law == nullptr || !c->fault.empty() || c->arithmetic == Arithmetic::native || !is_within(kBounds, *c))
    return;
  require_holds(*law, *c, engine_under_test);
}

std::string draw(Stream& stream) {
  const Law& law = law_named(stream.pick(kLaws));
  return print_case(drawn_within(kBounds, [&] {
    Case c = law.draw(stream);
    if (c.arithmetic == Arithmetic::native)
      c.arithmetic = stream.chance(1, 8) ? Arithmetic::exact : Arithmetic::tree;
    c.length = std::min<std::int64_t>(c.length, 8);
    c.batch = 1;
    return c;
  }));
}

}  // namespace

const Target& forward_differential() {
  static const Target target{.name = "forward_differential",
                             .claim =
                                 "Sharded logits of every small model in every layout equal the unsharded "
                                 "reference's bit for bit, under tree and under exact.",
                             .format = InputFormat::case_line,
                             .max_bytes = 4096,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
