// Several determinism axes at once against one rank that runs whole sequences alone.
#include "engine.h"
#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Prefill in chunks, then token by token, all sequences together.
std::vector<BatchStep> mixed_steps(const Case& c, const Sequences& sequences) {
  const std::int64_t last = c.chunks.empty() ? 2 : c.chunks.back() + 2;
  std::vector<std::int64_t> starts = c.chunks;
  for (std::int64_t at = last; at < last + 3; ++at) starts.push_back(at);
  return chunked_steps(sequences, starts);
}

Outcome check(const Case& c, Subject& subject) {
  const Engine engine(c, subject);
  return engine.compare("a run over several axes differs from one rank running each sequence alone",
                        engine.plain_form(single_steps(engine.sequences())),
                        engine.form(mixed_steps(c, engine.sequences())));
}

Case draw(Stream& stream) {
  return draw_axis_law("axis_compositions_are_invisible", stream,
                       {.tp = stream.chance(2, 3),
                        .pp = stream.chance(1, 2),
                        .cp = stream.chance(2, 3),
                        .ep = stream.chance(1, 3),
                        .sequence_parallel = stream.chance(1, 2),
                        .ragged = true,
                        .chunks = true});
}

}  // namespace

const Law& axis_compositions_are_invisible() {
  static const Law law{
      .name = "axis_compositions_are_invisible",
      .claim =
          "Logits of ragged batches, prefilled in chunks and decoded over a mesh of tensor, "
          "sequence, context, "
          "pipeline and expert parallelism at once, equal those of one rank that runs each "
          "sequence alone bit for "
          "bit.",
      .check = check,
      .draw = draw,
      .shares = axis_shares(
          {{"three_axes", 0.8}, {"target_cp>1", 0.4}, {"target_pp>1", 0.25}, {"target_ep>1", 0.15}}),
      .arithmetics = {Arithmetic::tree, Arithmetic::exact},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
