// Syncs one after the other through one subject: what a single one cannot tell.
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (const auto reason = why_shares_are_inexact(c, true)) return Outcome::of(Verdict::skipped, *reason);
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const TensorMap first = fingerprints_of(c);
  const TensorMap second = make_weights(c.geometry, c.weights, c.seed, c.dtype);
  Digest digest;
  for (const TensorMap* version : {&first, &second, &first}) {
    const ShardedTensors delivered = subject.reshard(subject.split(*version, source), source, target);
    digest.add(delivered);
    Outcome outcome =
        same_shards("a sync delivers other weights", target, split(*version, target), delivered);
    if (outcome.verdict != Verdict::passed) return with_digest(std::move(outcome), digest);
  }
  return with_digest(Outcome::pass(), digest);
}

Case draw(Stream& stream) {
  return draw_for("every_sync_delivers_its_weights", stream,
                  {.forward = false, .any_dtype = true, .meshes = true});
}

}  // namespace

const Law& every_sync_delivers_its_weights() {
  static const Law law{
      .name = "every_sync_delivers_its_weights",
      .claim = "A sync after others delivers the weights it was given, byte for byte, and none of theirs.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"source!=target", 0.5}},
      .smoke_cases = 100};
  return law;
}

}  // namespace shardcheck::laws
