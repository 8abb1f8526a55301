#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// With a whole head every rank computes all logits itself; otherwise they are gathered, and agree although
/// the hidden states may not.
bool has_whole_head(const Case& c) { return c.target.table == "hf-llama" && c.geometry.tied; }

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const std::vector<Tensor> logits = bench.execute(subject, shards, c.arithmetic);
  Digest digest;
  digest.add(shards);
  for (std::size_t rank = 0; rank < logits.size(); ++rank) {
    digest.add(logits[rank]);
    Outcome outcome =
        same_logits(fmt::format("rank {} disagrees with rank 0", rank), c, logits.front(), logits[rank]);
    if (outcome.difference) outcome.difference->rank = static_cast<int>(rank);
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  Outcome outcome = Outcome::pass();
  if (has_whole_head(c)) outcome.labels.emplace_back("whole_head");
  return with_digest(std::move(outcome), digest);
}

Case draw(Stream& stream) {
  Case c = draw_where("ranks_agree", stream, {.any_arithmetic = true}, target_is_sharded);
  if (stream.chance(1, 2)) {
    c.target.table = "hf-llama";
    c.geometry.tied = true;
  }
  return c;
}

}  // namespace

const Law& ranks_agree() {
  static const Law law{
      .name = "ranks_agree",
      .claim = "Every rank ends a forward pass with the same logits, bit for bit.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.9}, {"groups>=2x2", 0.3}, {"rope", 0.2}, {"whole_head", 0.25}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
