// Fused shards put together as they come, rank after rank.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool is_fused_group(const LayoutEntry& entry, std::string_view group) {
  return group == "qkv" ? stacks(entry, {"q", "k", "v"}) : stacks(entry, {"gate", "up"});
}

/// Ranks that share KV heads bring more rows than the tensor has.
bool holds_copies(const LayoutEntry& entry) {
  return entry.placed.local_shape(0)[0] * entry.placed.degree() != entry.placed.shape()[0];
}

/// The source tensor that stacks the same logical tensors over several ranks.
const LayoutEntry* fused_source(const Layout& source, const LayoutEntry& target) {
  for (const LayoutEntry& entry : source.entries) {
    const bool same_parts =
        std::ranges::equal(entry.parts, target.parts, {}, &LogicalTensor::name, &LogicalTensor::name);
    if (same_parts && is_cut(entry) && !holds_copies(entry)) return &entry;
  }
  return nullptr;
}

class RankMajorGather final : public SubjectDecorator {
 public:
  RankMajorGather(std::shared_ptr<Subject> inner, std::string_view group)
      : SubjectDecorator(std::move(inner)), group_(group) {}

  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors delivered = inner().reshard(shards, source, target);
    for (const LayoutEntry& entry : target.entries) {
      const LayoutEntry* from = is_fused_group(entry, group_) ? fused_source(source, entry) : nullptr;
      if (from == nullptr) continue;
      delivered.at(entry.name) = split_tensor(entry.placed, stacked(shards.at(from->name)));
    }
    return delivered;
  }

 private:
  std::string group_;
};

std::optional<std::string> not_applicable(const Case& c, std::string_view group) {
  const auto source = source_layout(c);
  const auto target = target_layout(c);
  if (!source || !target) return std::string(kUnrepresentable);
  for (const LayoutEntry& entry : target->entries) {
    if (is_fused_group(entry, group) && fused_source(*source, entry) != nullptr) return std::nullopt;
  }
  return "source and target do not both stack the tensors, or the source is one rank";
}

}  // namespace

// Never equivalent: rank 0 of the source ends with rows of the last segment, so the row after its first
// segment is another one, and the target holds every row once.
const Fault& gather_fused_rank_major() {
  static const Fault fault{
      .name = "gather_fused_rank_major",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "Fused shards of the source are concatenated rank after rank and taken for the global order.",
      .reports = {"A2", "A11", "A15"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"qkv", "gate_up"},
      .not_applicable = not_applicable,
      .equivalent = nullptr,
      .inject = [](std::shared_ptr<Subject> inner, const Case&, std::string_view group)
          -> std::shared_ptr<Subject> { return std::make_shared<RankMajorGather>(std::move(inner), group); }};
  return fault;
}

}  // namespace shardcheck::faults
