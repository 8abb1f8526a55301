#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  if (c.target.tp_degree() != 1)
    return Outcome::of(Verdict::vacuous,
                       fmt::format("target={}: the law is about degree 1", to_string(c.target)));
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  Digest digest;
  digest.add(shards);
  for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree}) {
    const std::vector<Tensor> logits = bench.execute(subject, shards, arithmetic);
    digest.add(logits.front());
    const Outcome outcome =
        same_logits(fmt::format("one rank differs from the reference under {}", to_string(arithmetic)), c,
                    bench.reference(arithmetic), logits.front());
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  return with_digest(Outcome::pass(), digest);
}

Case draw(Stream& stream) {
  Case c = draw_for("degree_one_is_identity", stream, {});
  c.target = layout_at(c.target.table, 1);
  return c;
}

}  // namespace

const Law& degree_one_is_identity() {
  static const Law law{
      .name = "degree_one_is_identity",
      .claim =
          "At target degree 1 the sharded logits deviate from the reference by exactly 0, native and tree.",
      .check = check,
      .draw = draw,
      .shares =
          {{"source_degree>1", 0.4}, {"groups>=2x2", 0.3}, {"rope", 0.2}, {"bias", 0.1}, {"tied", 0.08}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
