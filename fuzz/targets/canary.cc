// Fails on purpose, so that a night without findings means something.
#include "case_input.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

void check(std::string_view input) {
  const std::optional<Case> c = read_case(input);
  if (c && c->geometry.n_kv_heads == 3 && c->geometry.tied && c->dtype == DType::bf16 &&
      c->target.tp_degree() == 3)
    throw Finding("the canary was caught, as it has to be: three KV heads, tied, in bf16 over three ranks");
}

std::string draw(Stream& stream) {
  Case c = draw_case(stream, {.any_dtype = true, .arithmetic = Arithmetic::tree});
  c.law = "sharded_equals_reference";
  return print_case(c);
}

}  // namespace

const Target& canary() {
  static const Target target{.name = "canary",
                             .claim =
                                 "No case is tied, in bf16 and over three ranks with three KV heads: false, "
                                 "and to be found so.",
                             .format = InputFormat::case_line,
                             .max_bytes = 4096,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
