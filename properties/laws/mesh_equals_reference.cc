// Models of every family through split, reshard and the consumer of a mesh, against the unsharded reference.
#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const Outcome outcome = bench.judge_shards(oracle_of(c.arithmetic), subject, shards);
  return with_digest(outcome, Digest().add(shards).add(bench.reference(c.arithmetic)));
}

/// A seed target over several axes, from a seed source over others.
Case draw_seed(Stream& stream) {
  Case c = draw_axis_case(stream, {.tp = stream.chance(1, 2),
                                   .pp = stream.chance(1, 3),
                                   .cp = stream.chance(1, 4),
                                   .ep = stream.chance(1, 3)});
  const Case other = draw_axis_case(stream, {.tp = stream.chance(1, 2), .ep = true});
  c.source.axes = other.target.axes;
  if (!is_representable(c.source, c.geometry)) c.source.axes.clear();
  return c;
}

/// A target of any framework that has a forward pass here.
Case draw_framework(Stream& stream) {
  constexpr int kAttempts = 16;
  Case c;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    c = draw_mesh_case(stream, {.any_dtype = true});
    // A step of the forward pass needs a position for each of its tokens.
    if (c.geometry.positions > 0) c.geometry.positions = 16;
    if (c.target.table != "seed" && is_runnable(c.target, c.geometry)) break;
  }
  if (!is_runnable(c.target, c.geometry)) return draw_seed(stream);
  c.arithmetic = stream.chance(1, 6) ? Arithmetic::exact : Arithmetic::tree;
  c.length = stream.integer(8, 14);
  return c;
}

Case draw(Stream& stream) {
  Case c = stream.chance(1, 2) ? draw_seed(stream) : draw_framework(stream);
  c.law = "mesh_equals_reference";
  return c;
}

}  // namespace

const Law& mesh_equals_reference() {
  static const Law law{.name = "mesh_equals_reference",
                       .claim =
                           "Logits of any family's model, resharded to a layout over any axes and run as its "
                           "framework reads it, "
                           "equal the unsharded reference's bit for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"mesh", 0.4},
                                  {"target_degree>1", 0.25},
                                  {"target_pp>1", 0.12},
                                  {"target_ep>1", 0.1},
                                  {"experts", 0.3},
                                  {"layer_norm", 0.12},
                                  {"two_tables", 0.2}},
                       .arithmetics = {Arithmetic::tree, Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
