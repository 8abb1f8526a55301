// Norm weights through bf16 and back.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return is_norm(entry); }

void hurt(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) shard = shard.to(DType::bf16).to(DType::f32);
}

}  // namespace

// Never equivalent: random f32 weights are no bf16 numbers.
const Fault& narrow_norms_to_bf16() {
  static const Fault fault{
      .name = "narrow_norms_to_bf16",
      .family = 'S',
      .level = FaultLevel::value,
      .claim = "Norm weights that are f32 on both sides went through bf16 on their way.",
      .reports = {"A105", "A106"},
      .oracles = {Oracle::layout, Oracle::tree},  // a coarse threshold may not see it
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "weights of 16 bits have nothing to lose";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
