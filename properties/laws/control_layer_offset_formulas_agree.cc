#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// The same stages, written as a first and a last one that differ from the others.
LayoutName with_end_stages(LayoutName name, std::int64_t layers) {
  name.first_stage_layers = name.last_stage_layers = static_cast<int>(layers / name.degree("pp"));
  return name;
}

/// Layers before a stage, counted up stage by stage.
std::int64_t counted_up(std::int64_t layers, std::int64_t stages, std::int64_t stage) {
  std::int64_t before = 0;
  for (std::int64_t earlier = 0; earlier < stage; ++earlier)
    before += layers / stages + (earlier < layers % stages ? 1 : 0);
  return before;
}

Outcome check(const Case& c, Subject& subject) {
  const std::int64_t layers = c.geometry.n_layers, stages = c.target.degree("pp");
  if (stages < 2 || layers % stages != 0)
    return Outcome::of(Verdict::vacuous, "needs equal stages, at least two");
  const std::vector<std::int64_t> bounds = stage_bounds(layers, c.target);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t bound = bounds.at(static_cast<std::size_t>(stage));
    if (bound == stage * (layers / stages) && bound == counted_up(layers, stages, stage)) continue;
    return Outcome::fail(fmt::format("stage {} of {} begins at layer {}", stage, stages, bound));
  }
  const Layout source = make_layout(c.source, c.geometry);
  const Layout plain = make_layout(c.target, c.geometry);
  const Layout ends = make_layout(with_end_stages(c.target, layers), c.geometry);
  const TensorMap full = fingerprints_of(c);
  const ShardedTensors shards = subject.split(full, source), right = split(full, plain);
  Outcome outcome = same_shards("equal stages", plain, right, subject.reshard(shards, source, plain));
  if (outcome.verdict == Verdict::passed)
    outcome =
        same_shards("the same stages by their ends", plain, right, subject.reshard(shards, source, ends));
  return with_digest(std::move(outcome), Digest().add(right));
}

Case draw(Stream& stream) {
  Case c = draw_for("control_layer_offset_formulas_agree", stream, {.forward = false});
  const int stages = stream.pick<int>({2, 2, 3, 4});
  c.geometry.n_layers = stages * stream.integer(1, 3);
  c.source = layout_at("hf-llama", 1);
  c.target = {stream.pick<std::string>({"megatron-llama", "vllm-llama", "torchtitan-llama"}),
              {{"pp", stages}}};
  return c;
}

}  // namespace

const Law& control_layer_offset_formulas_agree() {
  static const Law law{
      .name = "control_layer_offset_formulas_agree",
      .claim =
          "Equal pipeline stages hold the same layers and bytes whether a stage begins at its number times "
          "their length, where the stages before it end, or by explicit lengths of the end stages.",
      .check = check,
      .draw = draw,
      .shares = {{"pipeline", 0.9}},
      .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
