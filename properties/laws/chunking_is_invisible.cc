// Prefill in chunks against prefill as a whole.
#include "engine.h"
#include "law_support.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const Engine engine(c, subject);
  return engine.compare("prefill in chunks differs from prefill as a whole",
                        engine.form(whole_steps(engine.sequences())),
                        engine.form(chunked_steps(engine.sequences(), c.chunks)));
}

Case draw(Stream& stream) { return draw_axis_law("chunking_is_invisible", stream, {.chunks = true}); }

}  // namespace

const Law& chunking_is_invisible() {
  static const Law law{.name = "chunking_is_invisible",
                       .claim =
                           "Logits of a prompt that is prefilled in chunks over a key-value cache equal "
                           "those of one prefill bit for "
                           "bit, wherever the chunks begin.",
                       .check = check,
                       .draw = draw,
                       .shares = axis_shares(),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
