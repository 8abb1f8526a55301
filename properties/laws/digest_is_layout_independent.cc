#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// The first rank's tensor of the last entry that no other rank repeats, with one bit flipped.
bool flip_one_bit(const Layout& layout, ShardedTensors& shards) {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.tied) continue;
    std::vector<Tensor>& ranks = shards.find(entry.name)->second;
    Tensor& first = ranks[static_cast<std::size_t>(entry.placed.holders().front())];
    if (first.elements() == 0) continue;
    for (Tensor& tensor : ranks) {
      // Replicas change together: what differs is the model, not a replica.
      if (&tensor != &first && tensor.same_bytes(first)) tensor.set_bits(0, first.bits(0) ^ 1U);
    }
    first.set_bits(0, first.bits(0) ^ 1U);
    return true;
  }
  return false;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const TensorMap logical = fingerprints_of(c);
  const WeightDigest expected = digest_of(logical);
  const ShardedTensors shards = subject.split(logical, source);
  ShardedTensors moved = subject.reshard(shards, source, target);
  const WeightDigest before = digest_of(source, shards), after = digest_of(target, moved);
  if (before != expected || after != expected) {
    return Outcome::fail(fmt::format("the digest is {} of the model, {} in {}, {} in {}", expected.hex(),
                                     before.hex(), to_string(c.source), after.hex(), to_string(c.target)));
  }
  const bool partly_replicated = c.target.tp_degree() > c.geometry.n_kv_heads;
  if (!partly_replicated && flip_one_bit(target, moved) && digest_of(target, moved) == expected)
    return Outcome::fail("one bit changed and the digest did not");
  return with_digest(Outcome::pass(), Digest().add(expected.hex()));
}

Case draw(Stream& stream) {
  return draw_for("digest_is_layout_independent", stream,
                  {.forward = false, .any_dtype = true, .meshes = true});
}

}  // namespace

const Law& digest_is_layout_independent() {
  static const Law law{
      .name = "digest_is_layout_independent",
      .claim =
          "The digest of a model is the same in every layout, and another one when a single bit of one rank "
          "changes.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}, {"source!=target", 0.5}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
