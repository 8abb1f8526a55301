#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const ShardedTensors shards = subject.split(fingerprints_of(c), source);
  const ShardedTensors back = subject.reshard(subject.reshard(shards, source, target), target, source);
  return with_digest(same_shards("what comes back differs", source, shards, back), Digest().add(back));
}

Case draw(Stream& stream) { return draw_for("there_and_back", stream, {.forward = false, .meshes = true}); }

}  // namespace

const Law& there_and_back() {
  static const Law law{
      .name = "there_and_back",
      .claim = "Resharding to any layout and back gives every byte of every rank back.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}, {"source!=target", 0.5}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
