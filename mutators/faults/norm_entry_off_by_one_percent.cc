// One entry of one norm of one rank, changed by less than a coarse threshold sees.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return entry.parts.front().role == "attn_norm" && entry.parts.front().layer == 0;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const float shift = entry.arrangement().shift;
  float& stored = shards.back().mutable_f32().front();
  stored = (stored - shift) * 1.01F + shift;
}

}  // namespace

const Fault& norm_entry_off_by_one_percent() {
  static const Fault fault{
      .name = "norm_entry_off_by_one_percent",
      .family = 'N',
      .level = FaultLevel::value,
      .claim = "One entry of one norm weight is one percent too large on the last rank.",
      .reports = {"A53", "A98"},
      .oracles = {Oracle::tree},  // the seed's threshold does not see it
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "one percent may round away in 16 bits";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
