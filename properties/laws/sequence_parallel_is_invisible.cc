// Tokens shared out between the products of a layer against all of them on every rank.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  require_no_chunks(c);
  if (c.target.tp_degree() == 1) return Outcome::of(Verdict::vacuous, "one rank keeps every token");
  const Engine engine(c, subject);
  RunForm plain = engine.form(whole_steps(engine.sequences()));
  RunForm shared = plain;
  plain.execution.sequence_parallel = false;
  shared.execution.sequence_parallel = true;
  return engine.compare("tokens shared out over ranks differ from all tokens on every rank", plain, shared);
}

Case draw(Stream& stream) {
  return draw_axis_law("sequence_parallel_is_invisible", stream,
                       {.sequence_parallel = true, .ragged = stream.chance(1, 2)});
}

}  // namespace

const Law& sequence_parallel_is_invisible() {
  static const Law law{.name = "sequence_parallel_is_invisible",
                       .claim =
                           "Logits of ranks that keep a share of the tokens between products, even or "
                           "uneven, equal those of ranks "
                           "that keep all tokens bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = axis_shares({{"sequence_parallel", 0.9}}),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
