#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

constexpr std::uint64_t kPoison = 0x7fc0dead;

/// Fills padding, the elements of code 0, with bits that no parameter has. Returns how many.
std::int64_t poison_padding(ShardedTensors& shards) {
  std::int64_t poisoned = 0;
  for (auto& [name, ranks] : shards) {
    for (Tensor& tensor : ranks) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        if (tensor.bits(i) != 0) continue;
        tensor.set_bits(i, kPoison);
        ++poisoned;
      }
    }
  }
  return poisoned;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const TensorMap logical = make_weights(c.geometry, WeightStyle::fingerprint, c.seed, DType::f32);
  ShardedTensors shards = subject.split(logical, source);
  if (poison_padding(shards) == 0) return Outcome::of(Verdict::vacuous, "the source has no padding");
  const ShardedTensors moved = subject.reshard(shards, source, target);
  Outcome outcome = same_shards("padding leaks into the target", target, split(logical, target), moved);
  if (outcome.verdict == Verdict::passed)
    outcome = same_tensors("padding leaks into the model", source, logical, subject.gather(shards, source));
  return with_digest(std::move(outcome), Digest().add(moved));
}

/// A vocabulary that the source pads.
Case draw(Stream& stream) {
  Case c = draw_for("padding_never_leaks", stream, {.forward = false, .meshes = true});
  c.geometry.n_layers = 2;
  c.geometry.dense_layers = std::min<std::int64_t>(c.geometry.dense_layers, 1);
  const bool latent = c.geometry.kv_lora > 0, experts = c.geometry.n_experts > 0;
  const std::string family = latent ? "mla-moe" : experts ? "moe" : "llama";
  if (c.geometry.norm == Norm::layer) c = draw_for("padding_never_leaks", stream, {.forward = false});
  c.dtype = DType::f32;
  const bool llama = c.geometry.n_experts == 0;
  const std::string table = (stream.chance(1, 2) ? "megatron-" : "vllm-") + (llama ? "llama" : family);
  c.source = {table, {}};
  if (stream.chance(1, 2)) c.source.axes.emplace_back("tp", 2);
  c.target = {stream.chance(1, 2) ? table : "hf-" + (llama ? "llama" : family), {}};
  if (stream.chance(1, 2)) c.target.axes.emplace_back("tp", 2);
  if (!is_representable(c.source, c.geometry)) c.source.axes.clear();
  if (!is_representable(c.target, c.geometry)) c.target.axes.clear();
  return c;
}

}  // namespace

const Law& padding_never_leaks() {
  static const Law law{.name = "padding_never_leaks",
                       .claim =
                           "Whatever bits the padding of a source holds, no target and no logical tensor "
                           "changes by them, and padding that is written is zero.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"target_degree>1", 0.15}},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
