// Experts dealt out over ranks against all of them on every rank.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (c.geometry.n_experts == 0) return Outcome::of(Verdict::vacuous, "the model has no experts");
  const Engine engine(c, subject);
  const auto steps =
      c.chunks.empty() ? whole_steps(engine.sequences()) : chunked_steps(engine.sequences(), c.chunks);
  return engine.compare("experts dealt out over ranks differ from all of them on one",
                        engine.form_without(Axis::ep, steps), engine.form(steps));
}

Case draw(Stream& stream) {
  Case c = draw_axis_case(stream, {.ep = true});
  c.law = "expert_parallel_is_invisible";
  return c;
}

}  // namespace

const Law& expert_parallel_is_invisible() {
  static const Law law{.name = "expert_parallel_is_invisible",
                       .claim =
                           "Logits with experts dealt out over ranks, each cut by tensor parallelism or "
                           "whole, equal those of ranks "
                           "that hold every expert bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"target_ep>1", 0.85},
                                  {"target_degree>1", 0.1},
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
