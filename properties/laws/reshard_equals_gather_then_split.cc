#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const ShardedTensors shards = subject.split(fingerprints_of(c), source);
  const ShardedTensors direct = subject.reshard(shards, source, target);
  const ShardedTensors detour = subject.split(subject.gather(shards, source), target);
  Outcome outcome = same_shards("reshard differs from gather then split", target, detour, direct);
  if (outcome.difference) outcome.difference->source_degree = source.degree;
  return with_digest(std::move(outcome), Digest().add(direct).add(detour));
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
