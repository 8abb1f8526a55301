// The last rows of the vocabulary, tokens added to a model, numbered otherwise by the two sides.
#include <algorithm>
#include <numeric>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

constexpr std::int64_t kAdded = 4;

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  const std::int64_t vocab = target.geometry.vocab;
  for (const LayoutEntry& entry : target.entries) {
    if (!belongs_to(entry, "embed") && !belongs_to(entry, "lm_head")) continue;
    auto& held = shards.at(entry.name);
    const Tensor full = gather_tensor(entry.placed, held);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(full.dim(0)));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    std::reverse(rows.begin() + std::max<std::int64_t>(0, vocab - kAdded), rows.begin() + vocab);
    held = split_tensor(entry.placed, with_rows(full, rows));
  }
}

}  // namespace

// Never equivalent: logits of the last tokens change places.
const Fault& reorder_added_tokens() {
  static const Fault fault{
      .name = "reorder_added_tokens",
      .family = 'V',
      .level = FaultLevel::plan,
      .claim = "The last four rows of the embedding and of the head are in reverse order.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.vocab == 1) return "a vocabulary of one token has one order";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
