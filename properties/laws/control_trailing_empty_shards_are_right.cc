#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

bool last_rank_is_empty(const Layout& layout) {
  const PlacedTensor& embed = layout.entry_of("embed").placed;
  return embed.degree() > 1 && embed.local_shape(embed.degree() - 1)[0] == 0;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  if (!last_rank_is_empty(bench.target()))
    return Outcome::of(Verdict::vacuous, "the last rank holds a part of the vocabulary");
  const Outcome bytes = bench.judge(Oracle::layout, subject);
  if (bytes.verdict != Verdict::passed) return bytes;
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const Outcome outcome = bench.judge_shards(oracle_of(c.arithmetic), subject, shards);
  return with_digest(outcome, Digest().add(shards).add(outcome.deviation));
}

/// ceil(vocab / degree) rows each leave nothing for the last rank.
bool can_end_empty(const Case& c) {
  return c.target.tp_degree() >= 3 && is_runnable(layout_at("seed", c.target.tp_degree()), c.geometry);
}

Case draw(Stream& stream) {
  Case c = draw_where("control_trailing_empty_shards_are_right", stream,
                      {.any_dtype = true, .any_arithmetic = true}, can_end_empty);
  c.source = layout_at("seed", 1);
  if (!can_end_empty(c)) return c;
  c.target.table = "seed";
  const std::int64_t degree = c.target.tp_degree();
  // rows * (degree - 1) tokens at most, and more than (rows - 1) * degree.
  const std::int64_t rows = stream.integer(2, std::max<std::int64_t>(2, degree - 1));
  c.geometry.vocab = stream.integer((rows - 1) * degree + 1, rows * (degree - 1));
  return c;
}

}  // namespace

const Law& control_trailing_empty_shards_are_right() {
  static const Law law{.name = "control_trailing_empty_shards_are_right",
                       .claim =
                           "Where ceil(vocab / t) rows of the embedding each leave the last ranks none, "
                           "bytes are those of the "
                           "layout and logits the reference's.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"uneven", 0.7}, {"target_degree>1", 0.8}},
                       .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
