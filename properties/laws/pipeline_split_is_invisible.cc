// A pipeline against one stage.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  return Engine(c, subject).compare_without(Axis::pp, "a pipeline of stages differs from one stage");
}

Case draw(Stream& stream) { return draw_axis_law("pipeline_split_is_invisible", stream, {.pp = true}); }

}  // namespace

const Law& pipeline_split_is_invisible() {
  static const Law law{
      .name = "pipeline_split_is_invisible",
      .claim =
          "Logits of a model cut into pipeline stages, even or uneven, equal those of one stage bit for bit.",
      .check = check,
      .draw = draw,
      .shares = axis_shares({{"target_pp>1", 0.9}}),
      .arithmetics = {Arithmetic::tree, Arithmetic::exact},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
