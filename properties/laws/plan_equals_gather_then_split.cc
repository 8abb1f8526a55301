#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  return reshard_equals_detour("the plan differs from gather then split", c, subject);
}

Case draw(Stream& stream) {
  return draw_for("plan_equals_gather_then_split", stream,
                  {.forward = false, .any_dtype = true, .meshes = true});
}

}  // namespace

const Law& plan_equals_gather_then_split() {
  static const Law law{
      .name = "plan_equals_gather_then_split",
      .claim = "Over any mesh, what a plan copies directly is what gathering and splitting again would give.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}, {"source!=target", 0.5}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
