// A request in company against the same request alone.
#include "engine.h"
#include "law_support.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

/// The sequences' places in the batch, in another order.
BatchStep shuffled_step(const Case& c, BatchStep step) {
  Stream stream(c.seed, "batch order");
  stream.shuffle(std::span(step));
  return step;
}

Outcome check(const Case& c, Subject& subject) {
  require_no_chunks(c);
  const Engine engine(c, subject);
  const BatchStep together = shuffled_step(c, whole_steps(engine.sequences()).front());
  return engine.compare("a sequence in a batch differs from the same sequence alone",
                        engine.form(single_steps(engine.sequences())), engine.form({together}));
}

Case draw(Stream& stream) { return draw_axis_law("batch_is_invisible", stream, {.ragged = true}); }

}  // namespace

const Law& batch_is_invisible() {
  static const Law law{.name = "batch_is_invisible",
                       .claim =
                           "Logits of a sequence do not depend on the batch: other sequences, their lengths "
                           "and their order change no "
                           "bit.",
                       .check = check,
                       .draw = draw,
                       .shares = axis_shares({{"ragged", 0.9}}),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
