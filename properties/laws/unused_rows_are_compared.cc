#include <fmt/format.h>

#include <set>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// A token that the inputs never name, chosen by the seed; -1 when every token is used.
std::int64_t unused_token(const Geometry& g, const Tokens& tokens, std::uint64_t seed) {
  const std::set<std::int32_t> used(tokens.ids.begin(), tokens.ids.end());
  const auto vocab = static_cast<std::uint64_t>(g.vocab);
  for (std::uint64_t i = 0; i < vocab; ++i) {
    const auto token = static_cast<std::int64_t>((seed + i) % vocab);
    if (!used.contains(static_cast<std::int32_t>(token))) return token;
  }
  return -1;
}

/// Local row of a token on the lowest rank that holds it.
struct Place {
  int rank = -1;
  std::int64_t row = 0;
};

Place place_of(const PlacedTensor& embed, std::int64_t token) {
  for (int rank = 0; rank < embed.degree(); ++rank) {
    const Selection selection = embed.selection(rank);
    if (selection.dim != 0) return {rank, token};
    std::int64_t local = 0;
    for (const Run& run : selection.runs) {
      if (token >= run.global && token < run.global + run.length) return {rank, local + token - run.global};
      local += run.length;
    }
  }
  return {};
}

/// A NaN in the first element of the row.
void poison_row(std::vector<Tensor>& ranks, const Place& place) {
  Tensor& tensor = ranks.at(static_cast<std::size_t>(place.rank));
  const auto row_bytes = tensor.bytes().size() / static_cast<std::size_t>(tensor.dim(0));
  const auto element_bytes = static_cast<std::size_t>(size_bits(tensor.dtype()) / 8);
  auto bytes = tensor.mutable_bytes().subspan(static_cast<std::size_t>(place.row) * row_bytes, element_bytes);
  for (std::byte& b : bytes) b = std::byte{0xff};
}

Outcome check(const Case& c, Subject& subject) {
  if (const auto reason = why_shares_are_inexact(c, true)) return Outcome::of(Verdict::skipped, *reason);
  Workbench bench(c);
  const std::int64_t token = unused_token(c.geometry, bench.tokens(), c.seed);
  if (token < 0) return Outcome::of(Verdict::vacuous, "the inputs name every token of the vocabulary");
  const Outcome moved = bench.judge(Oracle::layout, subject);
  if (moved.verdict != Verdict::passed) return moved;
  ShardedTensors shards = bench.moved(subject, bench.weights());
  const LayoutEntry& embed = bench.target().entry_of("embed");
  const Place place = place_of(embed.placed, token);
  poison_row(shards.at(embed.name), place);
  const Outcome seen = bench.judge_shards(Oracle::layout, subject, shards);
  const bool named = seen.verdict == Verdict::failed && seen.difference &&
                     seen.difference->parameter == embed.name && seen.difference->rank == place.rank;
  if (!named)
    return Outcome::fail(
        fmt::format("a NaN in row {} of {} on rank {}, a token that no input names, is not reported", token,
                    embed.name, place.rank));
  return with_digest(Outcome::pass(), Digest().add(shards));
}

Case draw(Stream& stream) { return draw_for("unused_rows_are_compared", stream, {.any_dtype = true}); }

}  // namespace

const Law& unused_rows_are_compared() {
  static const Law law{
      .name = "unused_rows_are_compared",
      .claim = "The layout oracle reports a wrong embedding row of a token that no input names.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.4}, {"uneven", 0.05}, {"tied", 0.08}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
