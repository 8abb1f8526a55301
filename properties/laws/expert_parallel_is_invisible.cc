// Experts dealt out over ranks against all of them on every rank.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (c.geometry.n_experts == 0) return Outcome::of(Verdict::vacuous, "the model has no experts");
  return Engine(c, subject)
      .compare_without(Axis::ep, "experts dealt out over ranks differ from all of them on one");
}

Case draw(Stream& stream) { return draw_axis_law("expert_parallel_is_invisible", stream, {.ep = true}); }

}  // namespace

const Law& expert_parallel_is_invisible() {
  static const Law law{.name = "expert_parallel_is_invisible",
                       .claim =
                           "Logits with experts dealt out over ranks, each cut by tensor parallelism or "
                           "whole, equal those of ranks "
                           "that hold every expert bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = axis_shares({{"target_ep>1", 0.85}, {"target_degree>1", 0.1}}),
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
