#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Numbers bits from `next` on, scattered so that 16-bit elements differ too.
void number_elements(Tensor& tensor, std::uint32_t& next) {
  constexpr std::uint32_t kOdd = 0x9E3779B1U;
  const int shift = 32 - size_bits(tensor.dtype());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set_bits(i, (next++ * kOdd) >> shift);
}

/// The full file tensor, numbered where its parts lie and zero in its padding.
Tensor numbered_full(const LayoutEntry& entry, DType dtype, std::uint32_t& next) {
  TensorMap parts;
  for (const LogicalTensor& part : entry.parts) {
    Tensor tensor = Tensor::uninitialized(dtype, part.shape);
    number_elements(tensor, next);
    parts.emplace(part.name, std::move(tensor));
  }
  return fuse(entry, parts);
}

/// Shards that no split has touched: numbered elements, replicas equal. Where ranks hold padding or a part of
/// each other's, what they hold is cut from one numbered tensor.
ShardedTensors numbered_shards(const Layout& layout, const Case& c) {
  ShardedTensors shards;
  auto next = static_cast<std::uint32_t>(c.seed) + 1;
  for (const LayoutEntry& entry : layout.entries) {
    std::vector<Tensor>& ranks = shards[entry.name];
    if (entry.arranged || layout.degree > c.geometry.n_kv_heads) {
      ranks = split_tensor(entry.placed, numbered_full(entry, c.dtype, next));
      continue;
    }
    const bool replicated = std::holds_alternative<Replicate>(entry.placed.placement());
    for (int rank = 0; rank < layout.degree; ++rank) {
      if (replicated && rank > 0) {
        ranks.push_back(ranks.front());
        continue;
      }
      ranks.push_back(Tensor::uninitialized(c.dtype, entry.placed.local_shape(rank)));
      number_elements(ranks.back(), next);
    }
  }
  return shards;
}

bool has_partial(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (std::holds_alternative<Partial>(entry.placed.placement())) return true;
  }
  return false;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout layout = make_layout(c.target, c.geometry);
  if (has_partial(layout)) return Outcome::of(Verdict::skipped, "many sets of addends have one sum");
  const ShardedTensors shards = numbered_shards(layout, c);
  const TensorMap gathered = subject.gather(shards, layout);
  const ShardedTensors again = subject.split(gathered, layout);
  return with_digest(same_shards("split does not undo gather", layout, shards, again),
                     Digest().add(gathered).add(again));
}

Case draw(Stream& stream) {
  return draw_for("split_inverts_gather", stream, {.forward = false, .any_dtype = true});
}

}  // namespace

const Law& split_inverts_gather() {
  static const Law law{.name = "split_inverts_gather",
                       .claim = "Splitting what gather produced gives back every byte of every shard.",
                       .check = check,
                       .draw = draw,
                       .shares = byte_shares(),
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
