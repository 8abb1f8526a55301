#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const Layout one = make_layout(layout_at(c.source.table, 1), c.geometry);
  const ShardedTensors shards_from_one =
      subject.reshard(subject.split(bench.weights(), one), one, bench.target());
  const Tensor logits = bench.execute(subject, shards, c.arithmetic).front();
  const Tensor logits_from_one = bench.execute(subject, shards_from_one, c.arithmetic).front();
  return with_digest(same_logits("the source degree shows in the logits", c, logits_from_one, logits),
                     Digest().add(shards).add(logits));
}

Case draw(Stream& stream) {
  return draw_for("source_degree_is_invisible", stream, {.any_dtype = true, .any_arithmetic = true});
}

std::vector<LabelShare> shares() {
  std::vector<LabelShare> all = forward_shares();
  all.push_back({"source_degree>1", 0.4});
  return all;
}

}  // namespace

const Law& source_degree_is_invisible() {
  static const Law law{
      .name = "source_degree_is_invisible",
      .claim = "Logits after resharding from any source degree equal bit for bit those from source degree 1.",
      .check = check,
      .draw = draw,
      .shares = shares(),
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
