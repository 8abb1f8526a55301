#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

bool is_fused(const LayoutEntry& entry, std::string_view first_role) {
  return entry.parts.size() > 1 && entry.parts.front().role == first_role;
}

bool has_fused(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (is_fused(entry, "q")) return true;
  }
  return false;
}

/// The table's mistake: the fused tensor that starts with `first_role` is cut as one block.
Layout with_block_cut(Layout layout, std::string_view first_role) {
  for (LayoutEntry& entry : layout.entries) {
    if (is_fused(entry, first_role))
      entry.placed = PlacedTensor(entry.name, entry.placed.shape(), Shard{.dim = 0}, layout.degree);
  }
  return layout;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  if (bench.target().degree == 1 || !has_fused(bench.target()))
    return Outcome::of(Verdict::vacuous, "a wrong cut needs a fused tensor and a second rank");
  const ShardedTensors source = subject.split(bench.weights(), bench.source());
  Digest digest;
  for (const char* role : {"q", "gate"}) {
    const Layout wrong = with_block_cut(bench.target(), role);
    const ShardedTensors shards = subject.reshard(source, bench.source(), wrong);
    const Outcome seen = bench.judge_shards(oracle_of(c.arithmetic), subject, shards);
    digest.add(shards).add(seen.deviation);
    if (seen.verdict == Verdict::passed) {
      Difference d;
      d.source_degree = bench.source().degree;
      d.target_degree = bench.target().degree;
      d.threshold = seen.threshold;
      d.expected = "a difference";
      d.actual = "the logits of the reference";
      return Outcome::fail(
          fmt::format("the fused tensor of {} cut as one block gives the reference's logits", role), d);
    }
    if (seen.verdict != Verdict::failed) return seen;
  }
  return with_digest(Outcome::pass(), digest);
}

bool target_is_fused_and_sharded(const Case& c) {
  return c.target.tp_degree() > 1 && c.target.table != "hf-llama";
}

Case draw(Stream& stream) {
  return draw_where("wrong_table_is_detected", stream, {.any_arithmetic = true}, target_is_fused_and_sharded);
}

}  // namespace

const Law& wrong_table_is_detected() {
  static const Law law{
      .name = "wrong_table_is_detected",
      .claim =
          "Shards made by a table that cuts a fused tensor as one block differ from the reference, because "
          "the "
          "consumer reads them by its own convention.",
      .check = check,
      .draw = draw,
      .shares = {{"fused", 0.9}, {"target_degree>1", 0.9}, {"source!=target", 0.4}, {"tree", 0.2}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
