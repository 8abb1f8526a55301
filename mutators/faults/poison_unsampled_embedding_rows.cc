// Embedding rows that no token of the case looks up.
#include <algorithm>
#include <set>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

std::set<std::int64_t> sampled(const Case& c) {
  const Tokens tokens = tokens_of(c);
  return {tokens.ids.begin(), tokens.ids.end()};
}

void poison(const LayoutEntry& entry, const std::set<std::int64_t>& kept, std::vector<Tensor>& shards) {
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const Selection owned = entry.placed.selection(static_cast<int>(rank));
    const std::int64_t first = owned.dim < 0 || owned.runs.empty() ? 0 : owned.runs.front().global;
    const std::size_t size = row_bytes(shards[rank]);
    const auto bytes = shards[rank].mutable_bytes();
    for (std::int64_t row = 0; row < shards[rank].dim(0); ++row) {
      if (kept.contains(first + row)) continue;
      // All bits set: a NaN in every floating format.
      std::ranges::fill(bytes.subspan(static_cast<std::size_t>(row) * size, size), std::byte{0xFF});
    }
  }
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (stacks(entry, {"embed"})) poison(entry, sampled(c), shards.at(entry.name));
  }
}

}  // namespace

const Fault& poison_unsampled_embedding_rows() {
  static const Fault fault{
      .name = "poison_unsampled_embedding_rows",
      .family = 'V',
      .level = FaultLevel::value,
      .claim = "Embedding rows of tokens that the case never looks up are NaN.",
      .reports = {"A58", "A66"},
      .oracles = {Oracle::layout},  // no logit of an untied model depends on them
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (std::ssize(sampled(c)) == c.geometry.vocab) return "every token of the vocabulary is looked up";
        return unless_any(
            c, [](const LayoutEntry& entry, const Layout&) { return stacks(entry, {"embed"}); },
            "the embedding is padded");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
