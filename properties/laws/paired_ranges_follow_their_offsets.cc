// Paired ranges at other offsets than the usual ones: the second of them first in the file.
#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

bool is_pair(const LayoutEntry& entry) {
  const auto* segments = std::get_if<Segments>(&entry.placed.placement());
  return segments != nullptr && segments->segments.size() == 2 && segments->dim == 0 && !entry.arranged;
}

/// Rows of the second range, then of the first, each cut on its own: by index arithmetic alone.
Tensor expected_rows(const Tensor& full, int degree, int rank) {
  const std::int64_t half = full.dim(0) / 2, share = half / degree;
  Shape shape = full.shape();
  shape[0] = 2 * share;
  Tensor rows = Tensor::uninitialized(full.dtype(), shape);
  const Tensor second = full.rows(half + rank * share, share), first = full.rows(rank * share, share);
  const auto behind = std::ranges::copy(second.bytes(), rows.mutable_bytes().begin()).out;
  std::ranges::copy(first.bytes(), behind);
  return rows;
}

/// The layout with the ranges of every pair exchanged; how many pairs there are.
std::int64_t exchange_ranges(Layout& layout) {
  std::int64_t pairs = 0;
  for (LayoutEntry& entry : layout.entries) {
    if (!is_pair(entry)) continue;
    const std::int64_t rows = entry.placed.shape()[0];
    entry.placed = PlacedTensor(entry.name, entry.placed.shape(),
                                fused_paired({rows / 2, rows}, {0, rows / 2}), layout.degree);
    ++pairs;
  }
  return pairs;
}

Outcome check(const Case& c, Subject& subject) {
  Layout layout = make_layout(c.target, c.geometry);
  if (exchange_ranges(layout) == 0 || layout.degree == 1)
    return Outcome::of(Verdict::vacuous, "no pair of ranges is cut over several ranks");
  const TensorMap full = fingerprints_of(c);
  const ShardedTensors shards = subject.split(full, layout);
  ShardedTensors expected = split(full, layout);
  for (const LayoutEntry& entry : layout.entries) {
    if (!is_pair(entry)) continue;
    for (int rank = 0; rank < layout.degree; ++rank)
      expected.at(entry.name).at(static_cast<std::size_t>(rank)) =
          expected_rows(fuse(entry, full), layout.degree, rank);
  }
  Outcome outcome = same_shards("paired ranges are cut elsewhere than they lie", layout, expected, shards);
  if (outcome.verdict == Verdict::passed)
    outcome =
        same_tensors("gathering paired ranges loses them", layout, full, subject.gather(shards, layout));
  return with_digest(std::move(outcome), Digest().add(shards));
}

bool has_pairs(const Case& c) {
  if (!target_is_sharded(c)) return false;
  Layout layout = make_layout(c.target, c.geometry);
  return exchange_ranges(layout) > 0;
}

Case draw(Stream& stream) {
  return draw_where("paired_ranges_follow_their_offsets", stream, {.forward = false, .any_dtype = true},
                    has_pairs);
}

}  // namespace

const Law& paired_ranges_follow_their_offsets() {
  static const Law law{
      .name = "paired_ranges_follow_their_offsets",
      .claim =
          "A rank holds its share of each of two paired ranges, the one that is named first first, wherever "
          "in the tensor the ranges begin.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.7}},
      .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
