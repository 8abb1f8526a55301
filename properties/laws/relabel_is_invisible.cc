#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/mutators/relabelling.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

/// Query heads in the order of their KV groups, and in another order inside each group.
Order order_of_heads(Stream& stream, const Geometry& g, const Order& groups) {
  const std::int64_t size = g.n_heads / g.n_kv_heads;
  Order heads;
  for (const std::int64_t group : groups) {
    for (const std::int64_t inside : shuffled(stream, size)) heads.push_back(group * size + inside);
  }
  return heads;
}

Relabelling random_relabelling(const Case& c) {
  const Geometry& g = c.geometry;
  Stream stream(c.seed, "relabel");
  Relabelling layers;
  for (std::int64_t layer = 0; layer < g.n_layers; ++layer) {
    LayerRelabelling& relabelling = layers.emplace_back();
    relabelling.ffn = shuffled(stream, g.ffn);
    relabelling.kv_heads = shuffled(stream, g.n_kv_heads);
    relabelling.heads = order_of_heads(stream, g, relabelling.kv_heads);
  }
  return layers;
}

/// Whether some token's embedding lies on rank 0 or 1, which hold the first rows of the vocabulary: rows that
/// nobody looks up may be exchanged freely.
bool looked_up(const std::vector<Tensor>& ranks, const Tokens& tokens) {
  const std::int64_t rows = ranks[0].dim(0) + ranks[1].dim(0);
  return std::ranges::any_of(tokens.ids, [rows](std::int32_t id) { return id < rows; });
}

/// The file tensors whose first two ranks hold different bytes: one exchanged alone is never a relabelling.
std::vector<std::string> exchangeable(const ShardedTensors& shards, const Geometry& geometry,
                                      const Tokens& tokens) {
  std::vector<std::string> names;
  for (const auto& [name, ranks] : shards) {
    const bool alike =
        ranks.size() < 2 || ranks[0].shape() != ranks[1].shape() || ranks[0].same_bytes(ranks[1]);
    // A key bias alone shifts all scores of a query alike: softmax does not see it.
    const bool shifts_scores =
        name.find("k_bias") != std::string::npos || name.find("k_proj.bias") != std::string::npos;
    if (alike || shifts_scores || ranks[0].elements() == 0) continue;
    const bool only_looked_up = name.find("embed") != std::string::npos && !geometry.tied;
    if (!only_looked_up || looked_up(ranks, tokens)) names.push_back(name);
  }
  return names;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const Tensor& reference = bench.reference(c.arithmetic);
  const TensorMap weights = relabelled(c.geometry, bench.weights(), random_relabelling(c));
  const auto logits = bench.execute(subject, bench.moved(subject, weights), c.arithmetic);
  Outcome outcome = same_logits("a relabelled model differs", c, reference, logits.front());
  if (outcome.verdict != Verdict::passed) return outcome;

  ShardedTensors shards = bench.moved(subject, bench.weights());
  Stream stream(c.seed, "exchange");
  if (const auto names = exchangeable(shards, c.geometry, bench.tokens()); !names.empty()) {
    const std::string name = stream.pick(names);
    std::swap(shards.at(name)[0], shards.at(name)[1]);
    const Tensor exchanged = bench.execute(subject, shards, c.arithmetic).front();
    if (compare_logits(reference, exchanged).differing_bits == 0)
      return Outcome::fail(fmt::format("{}: the shards of ranks 0 and 1 exchanged change no logit", name));
    outcome.labels.emplace_back("exchanged");
  }
  return with_digest(std::move(outcome), Digest().add(reference).add(weights));
}

Case draw(Stream& stream) {
  Case c = draw_for("relabel_is_invisible", stream, {.any_dtype = true, .arithmetic = Arithmetic::exact});
  c.length = stream.integer(8, 12);
  return c;
}

}  // namespace

const Law& relabel_is_invisible() {
  static const Law law{.name = "relabel_is_invisible",
                       .claim =
                           "Under exact, FFN channels, KV groups and heads inside a group relabelled through "
                           "all their tensors "
                           "change no bit, and a whole shard of one tensor exchanged always does.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"exchanged", 0.4}, {"groups>=2x2", 0.3}, {"16_bit", 0.3}, {"bias", 0.1}},
                       .arithmetics = {Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
