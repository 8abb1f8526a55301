#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Logits say that something is wrong, bytes say what: names the parameter that lies wrong, if one does.
void name_parameter(Workbench& bench, Subject& subject, Outcome& outcome) {
  const Outcome bytes = bench.judge(Oracle::layout, subject);
  if (!outcome.difference || !bytes.difference) return;
  outcome.message += "; " + bytes.message;
  outcome.difference->parameter = bytes.difference->parameter;
  outcome.difference->rank = bytes.difference->rank;
  outcome.difference->expected = bytes.difference->expected;
  outcome.difference->actual = bytes.difference->actual;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  Outcome outcome = bench.judge_shards(oracle_of(c.arithmetic), subject, shards);
  if (outcome.verdict == Verdict::failed) name_parameter(bench, subject, outcome);
  label_weights(bench.weights(), outcome.labels);
  return with_digest(outcome, Digest().add(shards).add(bench.reference(c.arithmetic)).add(outcome.deviation));
}

Case draw(Stream& stream) {
  return draw_for("sharded_equals_reference", stream, {.any_dtype = true, .any_arithmetic = true});
}

std::vector<LabelShare> shares() {
  std::vector<LabelShare> all = forward_shares();
  all.push_back({"tree", 0.2});
  all.push_back({"norms_spread", 0.95});
  all.push_back({"nonzero_biases", 0.1});
  return all;
}

}  // namespace

const Law& sharded_equals_reference() {
  static const Law law{
      .name = "sharded_equals_reference",
      .claim =
          "Sharded logits equal the unsharded reference's: below the threshold under native, "
          "bit for bit under tree.",
      .check = check,
      .draw = draw,
      .shares = shares(),
      .smoke_cases = 80};
  return law;
}

}  // namespace shardcheck::laws
