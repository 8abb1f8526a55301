#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Ranks that hold no row of the first layer's keys.
int ranks_without_keys(const Layout& layout) {
  const PlacedTensor& keys = layout.entry_of(logical_name("k", 0)).placed;
  int empty = 0;
  for (int rank = 0; rank < keys.degree(); ++rank) empty += keys.local_shape(rank)[0] == 0 ? 1 : 0;
  return empty;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  if (ranks_without_keys(target) == 0) return Outcome::of(Verdict::vacuous, "every rank owns rows of keys");
  const TensorMap full = fingerprints_of(c);
  const ShardedTensors shards = subject.reshard(subject.split(full, source), source, target);
  Outcome outcome = same_shards("ranks without keys and values", target, split(full, target), shards);
  if (outcome.verdict == Verdict::passed)
    outcome = same_tensors("gathered again", target, full, subject.gather(shards, target));
  return with_digest(std::move(outcome), Digest().add(shards));
}

Case draw(Stream& stream) {
  Case c = draw_for("control_ranks_without_kv_rows_lose_nothing", stream, {.forward = false});
  const std::int64_t group = c.geometry.n_heads / c.geometry.n_kv_heads;
  c.geometry.n_kv_heads = stream.integer(1, 4);
  c.geometry.n_heads = c.geometry.n_kv_heads * group;
  c.source = layout_at("hf-llama", 1);
  c.target = layout_at("deepspeed-autotp", static_cast<int>(c.geometry.n_kv_heads + stream.integer(1, 4)));
  return c;
}

}  // namespace

const Law& control_ranks_without_kv_rows_lose_nothing() {
  static const Law law{.name = "control_ranks_without_kv_rows_lose_nothing",
                       .claim =
                           "Where KV heads are dealt out over more ranks than there are, the ranks that own "
                           "no row of keys and "
                           "values hold the bytes of the layout, and all ranks together hold the model.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"kv_heads<target_degree", 0.9}},
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
