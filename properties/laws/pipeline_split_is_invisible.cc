// A pipeline against one stage.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const Engine engine(c, subject);
  const auto steps =
      c.chunks.empty() ? whole_steps(engine.sequences()) : chunked_steps(engine.sequences(), c.chunks);
  return engine.compare("a pipeline of stages differs from one stage", engine.form_without(Axis::pp, steps),
                        engine.form(steps));
}

Case draw(Stream& stream) {
  Case c = draw_axis_case(stream, {.pp = true});
  c.law = "pipeline_split_is_invisible";
  return c;
}

}  // namespace

const Law& pipeline_split_is_invisible() {
  static const Law law{
      .name = "pipeline_split_is_invisible",
      .claim =
          "Logits of a model cut into pipeline stages, even or uneven, equal those of one stage bit for bit.",
      .check = check,
      .draw = draw,
      .shares = {{"target_pp>1", 0.9},
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
