#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// With a whole head every rank computes all logits itself; otherwise they are gathered, and agree although
/// the hidden states may not.
bool has_whole_head(const Case& c) {
  const std::string& consumer = LayoutTable::built_in(c.target.table).consumer();
  return consumer != "none" && consumer_named(consumer).head_is_whole(c.geometry);
}

bool can_disagree(const Case& c) { return has_whole_head(c) && target_is_sharded(c); }

Outcome check(const Case& c, Subject& subject) {
  if (!can_disagree(c))
    return Outcome::of(
        Verdict::vacuous,
        "the ranks share one copy of the logits: only whole heads on two ranks or more can disagree");
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
  outcome.labels.emplace_back("whole_head");
  return with_digest(std::move(outcome), digest);
}

Case draw(Stream& stream) {
  constexpr int kAttempts = 16;
  Case c;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    c = draw_for("ranks_agree", stream, {.any_arithmetic = true});
    c.target.table = "hf-llama";
    c.geometry.tied = true;
    if (can_disagree(c) && is_runnable(c.source, c.geometry) && is_runnable(c.target, c.geometry)) break;
  }
  return c;
}

}  // namespace

const Law& ranks_agree() {
  static const Law law{
      .name = "ranks_agree",
      .claim = "Every rank with a whole head ends a forward pass with the same logits, bit for bit.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.9}, {"groups>=2x2", 0.3}, {"rope", 0.2}, {"whole_head", 0.9}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
