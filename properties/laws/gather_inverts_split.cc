#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (const auto reason = why_shares_are_inexact(c, true)) return Outcome::of(Verdict::skipped, *reason);
  const Layout layout = make_layout(c.target, c.geometry);
  const TensorMap full = fingerprints_of(c);
  const ShardedTensors shards = subject.split(full, layout);
  const TensorMap gathered = subject.gather(shards, layout);
  return with_digest(same_tensors("gather does not undo split", layout, full, gathered),
                     Digest().add(shards).add(gathered));
}

Case draw(Stream& stream) {
  return draw_for("gather_inverts_split", stream, {.forward = false, .any_dtype = true});
}

}  // namespace

const Law& gather_inverts_split() {
  static const Law law{.name = "gather_inverts_split",
                       .claim = "Gathering what split produced gives back every byte of every parameter.",
                       .check = check,
                       .draw = draw,
                       .shares = byte_shares(),
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
