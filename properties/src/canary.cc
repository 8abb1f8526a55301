#include "law_support.h"

namespace shardcheck {
namespace {

Outcome check(const Case& c, Subject&) {
  Outcome outcome =
      c.geometry.n_layers > 1 ? Outcome::fail("the model has more than one layer") : Outcome::pass();
  return with_digest(std::move(outcome), Digest().add(print_case(c)));
}

Case draw(Stream& stream) { return draw_for("canary", stream, {}); }

}  // namespace

const Law& canary_law() {
  static const Law law{.name = "canary",
                       .claim = "Every model has one layer, which is false on purpose.",
                       .check = check,
                       .draw = draw,
                       .shares = {}};
  return law;
}

}  // namespace shardcheck
