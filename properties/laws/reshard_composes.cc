#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (const auto reason = why_shares_are_inexact(c, true)) return Outcome::of(Verdict::skipped, *reason);
  const Layout source = make_layout(c.source, c.geometry);
  const Layout via = make_layout(c.via, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const ShardedTensors shards = subject.split(fingerprints_of(c), source);
  const ShardedTensors direct = subject.reshard(shards, source, target);
  const ShardedTensors two_steps = subject.reshard(subject.reshard(shards, source, via), via, target);
  Outcome outcome = same_shards("two reshards differ from one", target, direct, two_steps);
  if (outcome.difference) outcome.difference->source_degree = source.degree;
  if (via.degree > 1) outcome.labels.emplace_back("via_degree>1");
  return with_digest(std::move(outcome), Digest().add(direct).add(two_steps));
}

Case draw(Stream& stream) {
  return draw_for("reshard_composes", stream, {.forward = false, .any_dtype = true, .three_layouts = true});
}

}  // namespace

const Law& reshard_composes() {
  static const Law law{.name = "reshard_composes",
                       .claim = "Resharding through a third layout gives the bytes of resharding directly.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"target_degree>1", 0.4},
                                  {"source!=target", 0.4},
                                  {"via_degree>1", 0.4},
                                  {"two_tables", 0.2}},
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
