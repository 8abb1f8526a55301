// Vocabulary shards of the head that begin one row too early.
#include <numeric>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void shift(const LayoutEntry& entry, std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  for (std::size_t rank = 1; rank < shards.size(); ++rank) {
    const Selection owned = entry.placed.selection(static_cast<int>(rank));
    if (owned.runs.empty()) continue;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(owned.length()));
    std::iota(rows.begin(), rows.end(), owned.runs.front().global - 1);
    shards[rank] = with_rows(full, rows);
  }
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (is_head_of_two_ranks(entry, target)) shift(entry, shards.at(entry.name));
  }
}

}  // namespace

// Never equivalent: rank 1 owns rows, and every one of its logits is that of the token before.
const Fault& shift_head_rows() {
  static const Fault fault{
      .name = "shift_head_rows",
      .family = 'V',
      .level = FaultLevel::plan,
      .claim = "Every rank but the first holds the rows of the output head from one row too early.",
      .reports = {"A57", "A59"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view) {
            return unless_any(c, is_head_of_two_ranks, "the output head is not cut over several ranks");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
