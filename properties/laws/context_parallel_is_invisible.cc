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
  return Engine(c, subject)
      .compare_without(Axis::cp, "key positions cut over ranks differ from all of them on one rank");
}

Case draw(Stream& stream) {
  return draw_axis_law("context_parallel_is_invisible", stream, {.cp = true, .ragged = stream.chance(1, 2)});
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
                       .shares = axis_shares({{"target_cp>1", 0.9}}),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
