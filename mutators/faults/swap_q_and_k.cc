// Queries delivered as keys and keys as queries, where both are as wide.
#include <utility>

#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  if (target.geometry.n_heads != target.geometry.n_kv_heads) return;
  const std::int64_t rows = target.geometry.attention_width() / target.degree;
  for (const LayoutEntry& entry : target.entries) {
    if (stacks(entry, {"q", "k", "v"})) {
      for (Tensor& shard : shards.at(entry.name)) swap_rows(shard, 0, rows, rows);
    }
    if (!stacks(entry, {"q"})) continue;
    const LayoutEntry* k = unfused(target, logical_name("k", entry.parts.front().layer));
    if (k != nullptr) std::swap(shards.at(entry.name), shards.at(k->name));
  }
}

std::optional<std::string> not_applicable(const Case& c, std::string_view) {
  if (c.geometry.n_heads != c.geometry.n_kv_heads) return "q and k are not as wide as each other";
  if (auto reason = needs_two_positions(c)) return reason;
  return needs_plain_heads(c);
}

}  // namespace

// Never equivalent: scores are transposed, and under the causal mask a position sees other ones.
const Fault& swap_q_and_k() {
  static const Fault fault{
      .name = "swap_q_and_k",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "Queries are delivered where keys are read and keys where queries are read.",
      .reports = {"A16"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = not_applicable,
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .steer = [](Case& c, Stream&) {
        c.geometry.n_heads = c.geometry.n_kv_heads;
        settle(c);
      }};
  return fault;
}

}  // namespace shardcheck::faults
