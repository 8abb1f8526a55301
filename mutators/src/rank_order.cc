#include "rank_order.h"

#include <algorithm>

namespace shardcheck::faults {
namespace {

bool reads_a_moved_row(const Tokens& tokens, const LayoutEntry& embed, SourceRank source) {
  const int degree = embed.placed.degree();
  const std::int64_t share = embed.placed.local_shape(0)[0];
  return std::ranges::any_of(tokens.ids, [&](std::int32_t id) {
    const int rank = static_cast<int>(id / share);
    return source(rank, degree) != rank;
  });
}

}  // namespace

bool can_be_reassigned(const LayoutEntry& entry, std::string_view group) {
  if (!is_cut(entry) || !belongs_to(entry, group)) return false;
  const Shape first = entry.placed.local_shape(0);
  for (int rank = 1; rank < entry.placed.degree(); ++rank) {
    if (entry.placed.local_shape(rank) != first) return false;
  }
  return element_count(first) > 0;
}

void reassign(std::vector<Tensor>& shards, SourceRank source) {
  const std::vector<Tensor> right = shards;
  const int degree = static_cast<int>(right.size());
  for (int rank = 0; rank < degree; ++rank) {
    shards[static_cast<std::size_t>(rank)] = right[static_cast<std::size_t>(source(rank, degree))];
  }
}

std::optional<std::string> cannot_reassign(const Case& c, std::string_view group, SourceRank source) {
  const auto layout = target_layout(c);
  if (!layout) return std::string(kUnrepresentable);
  for (const LayoutEntry& entry : layout->entries) {
    if (!can_be_reassigned(entry, group)) continue;
    const bool only_looked_up = group == "embed" && !c.geometry.tied;
    if (only_looked_up && !reads_a_moved_row(tokens_of(c), entry, source)) {
      return "no sampled token has its embedding row on a rank that receives another shard";
    }
    return std::nullopt;
  }
  return "no tensor of " + std::string(group) + " is cut into equal shards over several ranks";
}

}  // namespace shardcheck::faults
