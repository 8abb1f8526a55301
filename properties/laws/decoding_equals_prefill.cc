// Decoding token by token against prefill of the same tokens.
#include <algorithm>

#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  require_no_chunks(c);
  const std::int64_t longest = std::ranges::max(lengths_of(c));
  if (longest < 2) return Outcome::of(Verdict::vacuous, "no sequence has a second token to decode");
  const Engine engine(c, subject);
  Stream stream(c.seed, "prefill");
  // At least half of the longest sequence is decoded: one step more or less may round alike.
  const std::int64_t prefill = stream.integer(1, longest / 2);
  return engine.compare("decoding over a cache differs from prefill of the same tokens",
                        engine.form(whole_steps(engine.sequences())),
                        engine.form(decoding_steps(engine.sequences(), prefill)));
}

Case draw(Stream& stream) { return draw_axis_law("decoding_equals_prefill", stream, {}); }

}  // namespace

const Law& decoding_equals_prefill() {
  static const Law law{.name = "decoding_equals_prefill",
                       .claim =
                           "Logits of tokens that are decoded one at a time over a key-value cache equal "
                           "those of one prefill of the "
                           "same tokens bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = axis_shares(),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
