// The trainer's log-probabilities against the rollout engine's: weights gathered from where they are
// stored and run whole, against the same weights resharded and run over ranks.
#include <fmt/format.h>

#include <algorithm>

#include "engine.h"
#include "law_support.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

/// Every token's successor in its sequence, the last one's its first.
std::vector<std::int32_t> successors(const Tokens& tokens) {
  std::vector<std::int32_t> next;
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    const bool last = (i + 1) % tokens.length == 0;
    next.push_back(tokens.ids[static_cast<std::size_t>(last ? i + 1 - tokens.length : i + 1)]);
  }
  return next;
}

/// The rollout engine's side: log-softmax of every row, and what it gives for the successors without
/// gathering.
struct Rollout {
  Tensor all, picked;
};

Rollout roll_out(const Case& c, Subject& subject, const Workbench& bench, const ShardedTensors& shards) {
  const Layout& layout = bench.target();
  require_executable(layout);
  MeshGroups groups(layout.mesh, [&](int degree) { return subject.collective(degree); });
  const ShardedModel model(c.geometry, shards, consumer_named(layout.consumer), groups, c.arithmetic,
                           bench.contract(), execution_of(c), subject.steps());
  const BatchStep step = whole_step(bench.tokens());
  KvCache first = model.make_cache(), second = model.make_cache();
  return {agreed(model.log_softmax(step, first)),
          agreed(model.token_logprobs(step, successors(bench.tokens()), second))};
}

/// The trainer's: weights gathered from where they are stored, run whole by the reference.
Tensor train(const Case& c, Subject& subject, const Workbench& bench, const ShardedTensors& stored) {
  const ReferenceModel model(c.geometry, subject.gather(stored, bench.source()), c.arithmetic,
                             bench.contract());
  return model.log_softmax(bench.tokens());
}

/// Row i's value at its successor.
Tensor looked_up(const Tensor& all, const std::vector<std::int32_t>& next) {
  Tensor picked = Tensor::uninitialized(DType::f32, {std::ssize(next)});
  for (std::size_t i = 0; i < next.size(); ++i)
    picked.mutable_f32()[i] =
        all.f32()[i * static_cast<std::size_t>(all.dim(1)) + static_cast<std::size_t>(next[i])];
  return picked;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors stored = subject.split(bench.weights(), bench.source());
  const Tensor trainer = train(c, subject, bench, stored);
  const Rollout rollout =
      roll_out(c, subject, bench, subject.reshard(stored, bench.source(), bench.target()));
  const Digest digest = Digest().add(trainer).add(rollout.all).add(rollout.picked);
  Outcome outcome =
      same_logits("log-probabilities of the rollout differ from the trainer's", c, trainer, rollout.all);
  if (outcome.verdict == Verdict::passed &&
      !looked_up(trainer, successors(bench.tokens())).same_bytes(rollout.picked))
    outcome = Outcome::fail("log-probabilities of given tokens differ from the same ones of all tokens");
  return with_digest(std::move(outcome), digest);
}

/// Stored as FSDP stores a Llama, or over several axes; run as its consumers run it, over any mesh.
Case draw(Stream& stream) {
  if (stream.chance(1, 2)) {
    Case c = draw_where("logprobs_agree_across_layouts", stream,
                        {.any_dtype = true, .axis = true, .any_contract = true}, target_is_sharded);
    c.source = {"fsdp2-tp", {{"dp", static_cast<int>(stream.integer(2, 6))}}};
    c.length = stream.integer(8, 20);
    return c;
  }
  return draw_axis_law("logprobs_agree_across_layouts", stream,
                       {.tp = true, .cp = stream.chance(1, 4), .sequence_parallel = stream.chance(1, 4)});
}

}  // namespace

const Law& logprobs_agree_across_layouts() {
  static const Law law{
      .name = "logprobs_agree_across_layouts",
      .claim =
          "Log-probabilities of every token, normalised over a vocabulary that is cut over the ranks of any "
          "mesh, equal those of weights stored as a trainer stores them and run on one rank bit for bit.",
      .check = check,
      .draw = draw,
      .shares = {{"16_bit", 0.3},
                 {"exact", 0.08},
                 {"target_degree>1", 0.8},
                 {"stored_by_fsdp", 0.35},
                 {"uneven", 0.1}},
      .arithmetics = {Arithmetic::tree, Arithmetic::exact},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
