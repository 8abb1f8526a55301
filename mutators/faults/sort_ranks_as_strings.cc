// Rank files in the order of their names: 0, 1, 10, 11, 2.
#include <algorithm>
#include <string>

#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

/// Rank whose file comes at `place` when names are sorted.
int rank_at(int place, int degree) {
  std::vector<std::string> names;
  for (int rank = 0; rank < degree; ++rank) names.push_back(std::to_string(rank));
  std::ranges::sort(names);
  return std::stoi(names[static_cast<std::size_t>(place)]);
}

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (entry.placed.degree() <= 10 || !is_evenly_cut(entry)) return std::nullopt;
  const Selection read = entry.placed.selection(rank_at(rank, entry.placed.degree()));
  return Taken{read.dim, read.runs};
}

/// Heads and channels alone, permuted in all their tensors alike, are only renamed: the vocabulary is not.
std::optional<std::string> not_applicable(const Case& c, std::string_view argument) {
  if (auto reason = unless_taken(c, argument, Side::source, taken, "the source has ten ranks or fewer")) {
    return reason;
  }
  const auto source = source_layout(c);
  const bool renames = std::ranges::none_of(source->entries, [&](const LayoutEntry& entry) {
    return is_head(entry, *source) && is_evenly_cut(entry);
  });
  if (renames) return "the output head is not cut evenly, so heads and channels are only renamed";
  return std::nullopt;
}

}  // namespace

// Never equivalent: tokens of rank 2 get the logits of tokens of rank 10.
const Fault& sort_ranks_as_strings() {
  static const Fault fault{
      .name = "sort_ranks_as_strings",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim =
          "The shards of more than ten source ranks are put together in the order of their numbers as "
          "strings.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = not_applicable,
      .equivalent = nullptr,
      .inject = takes<taken, Side::source>,
      .steer = [](Case& c, Stream& stream) {
        const int ranks = static_cast<int>(stream.integer(11, 12));
        c.geometry.n_kv_heads = 1;
        c.geometry.n_heads = stream.integer(1, 2);
        c.geometry.head_dim = 4;
        fit_ranks(c.geometry, ranks);
        c.source = over_ranks(stream.pick<std::string>({"seed", "hf-llama"}), ranks);
        settle(c);
      }};
  return fault;
}

}  // namespace shardcheck::faults
