#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// One random bit of one random tensor, flipped on every rank that holds its replica: what differs is the
/// model.
bool flip_one_bit(Stream& stream, const Layout& layout, ShardedTensors& shards) {
  std::vector<const LayoutEntry*> entries;
  for (const LayoutEntry& entry : layout.entries) {
    if (!entry.tied && !entry.arranged && element_count(entry.placed.shape()) > 0) entries.push_back(&entry);
  }
  if (entries.empty()) return false;
  const LayoutEntry& entry = *stream.pick(entries);
  std::vector<Tensor>& ranks = shards.find(entry.name)->second;
  const int chosen = stream.pick(entry.placed.holders());
  const std::int64_t elements = ranks[static_cast<std::size_t>(chosen)].elements();
  if (elements == 0) return false;
  const std::int64_t index = stream.integer(0, elements - 1);
  const std::uint64_t bit =
      std::uint64_t{1} << stream.integer(0, size_bits(ranks[static_cast<std::size_t>(chosen)].dtype()) - 1);
  for (const int rank : entry.placed.holders()) {
    if (entry.placed.class_of(rank) != entry.placed.class_of(chosen)) continue;
    Tensor& tensor = ranks[static_cast<std::size_t>(rank)];
    tensor.set_bits(index, tensor.bits(index) ^ bit);
  }
  return true;
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
  Stream stream(c.seed, "digest_is_layout_independent");
  if (!partly_replicated && flip_one_bit(stream, target, moved) && digest_of(target, moved) == expected)
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
