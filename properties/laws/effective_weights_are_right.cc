#include "law_support.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck::laws {
namespace {

Outcome judged(const Case& c) {
  if (const auto reason = why_no_effective_weights(c)) return Outcome::of(Verdict::skipped, *reason);
  const ShardedTensors held = effective_weights(c);
  return with_digest(judge_effective(c, held), Digest().add(held));
}

Outcome check(const Case& c, Subject&) {
  Outcome outcome = judged(c);
  outcome.labels.emplace_back(to_string(c.effective));
  return outcome;
}

Case draw(Stream& stream) {
  std::vector<EffectiveKind> kinds;
  for (const EffectiveModel* model : all_effective_models()) kinds.push_back(model->kind);
  const EffectiveKind kind = stream.pick(kinds);
  Case c;
  for (int attempt = 0; attempt < 16; ++attempt) {
    c = draw_for("effective_weights_are_right", stream, {.forward = false});
    c.effective = kind;
    if (target_is_sharded(c) && !why_no_effective_weights(c)) break;
  }
  return c;
}

}  // namespace

const Law& effective_weights_are_right() {
  static const Law law{
      .name = "effective_weights_are_right",
      .claim =
          "What each rank's engine computes with, of weights that are quantised, adapted, "
          "fused, summed or read back from files, is its part of the unsharded ones, bit for "
          "bit.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.9},
                 {"quantized", 0.05},
                 {"adapter", 0.05},
                 {"state_space", 0.05},
                 {"latent", 0.05},
                 {"gradient", 0.05},
                 {"optimizer", 0.05}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
