#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

bool is_a_head(const LayoutEntry& entry) {
  return std::ranges::any_of(entry.parts, [](const LogicalTensor& part) { return part.role == "lm_head"; });
}

Outcome check(const Case& c, Subject& subject) {
  if (!c.geometry.tied) return Outcome::of(Verdict::vacuous, "the head is a tensor of its own");
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  for (const LayoutEntry& entry : bench.target().entries) {
    if (entry.tied || is_a_head(entry))
      return Outcome::fail(fmt::format("{} is sent although the embedding carries the head", entry.name));
  }
  const Outcome bytes = bench.judge_shards(Oracle::layout, subject, shards);
  if (bytes.verdict != Verdict::passed) return bytes;
  const Outcome outcome = bench.judge_shards(oracle_of(c.arithmetic), subject, shards);
  return with_digest(outcome, Digest().add(shards).add(outcome.deviation));
}

Case draw(Stream& stream) {
  Case c = draw_for("control_tied_head_needs_no_copy", stream, {.any_dtype = true, .any_arithmetic = true});
  c.geometry.tied = true;
  for (LayoutName* name : {&c.source, &c.target}) {
    if (!is_runnable(*name, c.geometry)) *name = layout_at(name->table, 1);
  }
  return c;
}

}  // namespace

const Law& control_tied_head_needs_no_copy() {
  static const Law law{
      .name = "control_tied_head_needs_no_copy",
      .claim =
          "A model whose output head is its embedding gives the reference's logits from shards among which "
          "there is no head.",
      .check = check,
      .draw = draw,
      .shares = {{"tied", 0.9}, {"target_degree>1", 0.4}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
