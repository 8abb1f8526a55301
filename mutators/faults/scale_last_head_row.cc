// One vocabulary row that is wrong by less than a coarse threshold sees.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

/// A head whose last row is a token's.
bool hits(const LayoutEntry& entry, const Layout& layout) {
  return is_head(entry, layout) && !is_padded(entry);
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!hits(entry, target)) continue;
    Tensor& last = last_held(shards.at(entry.name));
    const auto width = static_cast<std::size_t>(last.dim(1));
    for (float& weight : last.mutable_f32().last(width)) weight *= 1.0005F;
  }
}

}  // namespace

const Fault& scale_last_head_row() {
  static const Fault fault{
      .name = "scale_last_head_row",
      .family = 'V',
      .level = FaultLevel::value,
      .claim = "The last row of the output head is too large by five parts in ten thousand.",
      .reports = {"A105"},
      .oracles = {Oracle::tree},  // the seed's threshold does not see it
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "the factor rounds away in 16 bits";
        return unless_any(c, hits, "the last row of the output head is padding");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
