// Parts of a fused tensor that come in different buckets.
#include <algorithm>
#include <set>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

constexpr std::ptrdiff_t kBucket = 10;

/// Logical tensors in the order in which they are sent.
std::set<std::string> sent(const Layout& layout) {
  std::set<std::string> names;
  for (const LayoutEntry& entry : layout.entries) {
    for (const LogicalTensor& part : entry.parts) names.insert(part.name);
  }
  return names;
}

bool is_torn(const std::set<std::string>& names, const LayoutEntry& entry) {
  const auto bucket = [&](const LogicalTensor& part) {
    return std::distance(names.begin(), names.find(part.name)) / kBucket;
  };
  const auto first = bucket(entry.parts.front());
  return std::ranges::any_of(entry.parts, [&](const LogicalTensor& part) { return bucket(part) != first; });
}

/// Of one layer and expert: what a loader fuses from its parts.
bool is_fused(const LayoutEntry& entry) {
  const Place first = place_of(entry.parts.front());
  return entry.parts.size() > 1 &&
         std::ranges::all_of(entry.parts,
                             [&](const LogicalTensor& part) { return place_of(part) == first; }) &&
         (belongs_to(entry, "qkv") || belongs_to(entry, "gate_up"));
}

std::set<std::string> torn(const Layout& layout) {
  const std::set<std::string> names = sent(layout);
  std::set<std::string> lost;
  for (const LayoutEntry& entry : layout.entries) {
    if (!is_fused(entry) || !is_torn(names, entry)) continue;
    for (const LogicalTensor& part : entry.parts) lost.insert(part.name);
  }
  return lost;
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const std::set<std::string> lost = torn(target);
  keep_earlier(
      c, target, [&](const LogicalTensor& part) { return lost.contains(part.name); }, shards);
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& lose_pair_across_buckets() {
  static const Fault fault{
      .name = "lose_pair_across_buckets",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim =
          "Weights are sent in buckets of ten, and a fused tensor whose parts come in two of them is never "
          "completed and keeps an earlier version.",
      .reports = {"A100"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (auto reason = needs_layout(c)) return reason;
        if (torn(*target_layout(c)).empty()) return "no bucket ends inside a fused tensor";
        return std::nullopt;
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .meshes = true};
  return fault;
}

}  // namespace shardcheck::faults
