#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

using Order = std::vector<std::int64_t>;

/// An order of blocks as the order of their rows.
Order of_rows(const Order& blocks, std::int64_t block) {
  Order rows;
  for (const std::int64_t first : blocks) {
    for (std::int64_t i = 0; i < block; ++i) rows.push_back(first * block + i);
  }
  return rows;
}

std::size_t element_bytes(const Tensor& tensor) {
  return static_cast<std::size_t>(size_bits(tensor.dtype())) / 8;
}

/// out[i] = in[order[i]] along dimension `dim` (0, or 1 of a matrix).
Tensor reordered(const Tensor& in, const Order& order, int dim) {
  Tensor out = Tensor::uninitialized(in.dtype(), in.shape());
  const bool by_rows = dim == 0;
  const std::size_t rows = static_cast<std::size_t>(in.dim(0));
  const std::size_t width = in.bytes().size() / std::max<std::size_t>(rows, 1), item = element_bytes(in);
  auto to = out.mutable_bytes();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto from =
        in.bytes().subspan((by_rows ? static_cast<std::size_t>(order[row]) : row) * width, width);
    const auto target = to.subspan(row * width, width);
    if (by_rows) {
      std::ranges::copy(from, target.begin());
      continue;
    }
    for (std::size_t column = 0; column < order.size(); ++column)
      std::ranges::copy(from.subspan(static_cast<std::size_t>(order[column]) * item, item),
                        target.subspan(column * item, item).begin());
  }
  return out;
}

/// Reorders what a layer's producers write and its consumer reads, alike.
void relabel(TensorMap& weights, std::int64_t layer, std::initializer_list<std::string_view> producers,
             std::string_view consumer, const Order& order) {
  for (const std::string_view role : producers) {
    const auto found = weights.find(logical_name(role, layer));
    if (found != weights.end()) found->second = reordered(found->second, order, 0);
  }
  if (consumer.empty()) return;
  Tensor& columns = weights.at(logical_name(consumer, layer));
  columns = reordered(columns, order, 1);
}

/// Query heads in the order of their KV groups, and in another order inside each group.
Order order_of_heads(Stream& stream, const Geometry& g, const Order& groups) {
  const std::int64_t size = g.n_heads / g.n_kv_heads;
  Order heads;
  for (const std::int64_t group : groups) {
    for (const std::int64_t inside : shuffled(stream, size)) heads.push_back(group * size + inside);
  }
  return heads;
}

TensorMap relabelled(const Case& c, TensorMap weights) {
  const Geometry& g = c.geometry;
  Stream stream(c.seed, "relabel");
  for (std::int64_t layer = 0; layer < g.n_layers; ++layer) {
    relabel(weights, layer, {"gate", "up"}, "down", shuffled(stream, g.ffn));
    const Order groups = shuffled(stream, g.n_kv_heads);
    relabel(weights, layer, {"k", "k_bias", "v", "v_bias"}, "", of_rows(groups, g.head_dim));
    relabel(weights, layer, {"q", "q_bias"}, "o_proj",
            of_rows(order_of_heads(stream, g, groups), g.head_dim));
  }
  return weights;
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
  const TensorMap weights = relabelled(c, bench.weights());
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
