#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  return reshard_equals_detour("reshard differs from gather then split", c, subject);
}

Case draw(Stream& stream) {
  return draw_for("reshard_equals_gather_then_split", stream, {.forward = false, .any_dtype = true});
}

}  // namespace

const Law& reshard_equals_gather_then_split() {
  static const Law law{.name = "reshard_equals_gather_then_split",
                       .claim = "Resharding directly gives the bytes of gathering and splitting again.",
                       .check = check,
                       .draw = draw,
                       .shares = byte_shares(),
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
