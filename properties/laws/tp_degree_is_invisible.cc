#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/model/row_parallel_linear.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

constexpr int kLargestDegree = 16;
constexpr std::int64_t kLinearRows = 3;

/// Logits at a degree, of ranks that read views of one packed model (tree), or of the bytes of its shards.
class Degrees {
 public:
  Degrees(Workbench& bench, Subject& subject) : bench_(bench), subject_(subject) {
    const Case& c = bench.value();
    if (c.arithmetic != Arithmetic::exact) packed_.emplace(c.geometry, bench.weights(), c.arithmetic);
  }

  Tensor logits(int degree) {
    const Case& c = bench_.value();
    const auto collective = subject_.collective(degree);
    if (packed_) {
      return ShardedModel(*packed_, *collective, bench_.contract(), subject_.steps(), c.exchange)
          .forward(bench_.tokens())
          .front();
    }
    const Layout layout = make_layout(layout_at("seed", degree), c.geometry);
    return ShardedModel(c.geometry, split(bench_.weights(), layout), consumer_named(layout.consumer),
                        *collective, c.arithmetic, bench_.contract(), subject_.steps(), c.exchange)
        .forward(bench_.tokens())
        .front();
  }

 private:
  Workbench& bench_;
  Subject& subject_;
  std::optional<PackedModel> packed_;
};

/// The down projection alone, at every degree: no head limits it, and its leaves need not divide evenly. Its
/// outputs stay f32, so that no rounding hides another order.
Outcome check_linear(Workbench& bench, Subject& subject, Digest& digest) {
  const Case& c = bench.value();
  RowParallelLinear layer;
  layer.weights = bench.weights().at("layers.0.down");
  layer.x = Tensor::uninitialized(DType::f32, {kLinearRows, c.geometry.ffn});
  fill_normal(layer.x.mutable_f32(), stream_key(c.seed, "row-parallel input"), 0.0F, 1.0F);
  layer.arithmetic = c.arithmetic;
  layer.shape = c.tree_shape;
  layer.leaf = std::min<std::int64_t>(c.leaf, std::max<std::int64_t>(1, c.geometry.ffn / 11));
  std::optional<Tensor> one;
  for (int degree = 1; degree <= kLargestDegree; ++degree) {
    const auto collective = subject.collective(degree);
    const auto cuts = leaf_cuts(c.geometry.ffn, layer.leaf, degree);
    for (const Tensor& output : run(layer, cuts, *collective, subject.steps(), c.exchange)) {
      if (!one) one = output;
      const Outcome outcome = same_logits(
          fmt::format("a row-parallel layer over {} ranks differs from one rank's", degree), c, *one, output);
      if (outcome.verdict != Verdict::passed) return outcome;
    }
  }
  digest.add(*one);
  return Outcome::pass();
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  Degrees degrees(bench, subject);
  const Tensor one = degrees.logits(1);
  Digest digest;
  digest.add(one);
  int compared = 0;
  for (const int degree : bench.contract().degrees) {
    if (degree < 2 || degree > kLargestDegree || !is_runnable(layout_at("seed", degree), c.geometry))
      continue;
    Outcome outcome =
        same_logits(fmt::format("TP {} differs from TP 1", degree), c, one, degrees.logits(degree));
    if (outcome.difference) outcome.difference->target_degree = degree;
    if (outcome.verdict != Verdict::passed) return outcome;
    ++compared;
  }
  Outcome outcome;
  try {
    outcome = check_linear(bench, subject, digest);
  } catch (const UnsupportedLayout& refusal) {
    // Every cut lies between leaves: who refuses one has other leaves.
    return Outcome::fail(fmt::format("a cut between leaves is refused: {}", refusal.what()));
  }
  if (compared > 0) outcome.labels.emplace_back("several_degrees");
  return with_digest(std::move(outcome), digest);
}

Case draw(Stream& stream) {
  return draw_where("tp_degree_is_invisible", stream, {.any_dtype = true, .axis = true, .any_contract = true},
                    [](const Case& c) { return c.geometry.n_kv_heads > 1; });
}

}  // namespace

const Law& tp_degree_is_invisible() {
  static const Law law{
      .name = "tp_degree_is_invisible",
      .claim =
          "Under tree and exact, logits at every degree of the contract equal those of one rank bit for bit, "
          "and so does a row-parallel layer over 1 to 16 ranks, cut anywhere between leaves.",
      .check = check,
      .draw = draw,
      .shares = {{"several_degrees", 0.5},
                 {"16_bit", 0.3},
                 {"exact", 0.08},
                 {"linear_tree", 0.08},
                 {"two_shots", 0.1},
                 {"rope", 0.2},
                 {"bias", 0.1},
                 {"o_bias", 0.08}},
      .arithmetics = {Arithmetic::tree, Arithmetic::exact},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
