// Key positions cut over ranks against all of them on one.
#include <algorithm>

#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const std::int64_t longest = std::ranges::max(lengths_of(c));
  const std::int64_t first_end = c.context_ends.empty() ? c.key_block : c.context_ends.front();
  if (longest <= first_end) return Outcome::of(Verdict::vacuous, "one rank holds every position");
  const Engine engine(c, subject);
  const auto steps =
      c.chunks.empty() ? whole_steps(engine.sequences()) : chunked_steps(engine.sequences(), c.chunks);
  return engine.compare("key positions cut over ranks differ from all of them on one rank",
                        engine.form_without(Axis::cp, steps), engine.form(steps));
}

Case draw(Stream& stream) {
  Case c = draw_axis_case(stream, {.cp = true, .ragged = stream.chance(1, 2)});
  c.law = "context_parallel_is_invisible";
  return c;
}

}  // namespace

const Law& context_parallel_is_invisible() {
  static const Law law{.name = "context_parallel_is_invisible",
                       .claim =
                           "Logits with key positions cut over ranks, anywhere between key blocks, equal "
                           "those of one rank that holds "
                           "all positions bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"target_cp>1", 0.9},
                                  {"16_bit", 0.3},
                                  {"exact", 0.08},
                                  {"linear_tree", 0.1},
                                  {"experts", 0.1},
                                  {"layer_norm", 0.15}},
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
