// A norm stored as its difference from one, taken for the norm itself, and the reverse.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return is_norm(entry); }

/// A plain file with the zero-centred weight, a zero-centred file with the plain one.
void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const float shift = entry.arrangement().shift;
  const float change = shift == 0.0F ? -1.0F : -shift;
  for (Tensor& shard : shards) change_values(shard, [change](float value) { return value + change; });
}

}  // namespace

// Never equivalent: every weight is off by one.
const Fault& zero_centred_norm_read_as_plain() {
  static const Fault fault{
      .name = "zero_centred_norm_read_as_plain",
      .family = 'N',
      .level = FaultLevel::value,
      .claim = "Norm weights that one side stores less one are taken for plain ones, or the reverse.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .steer =
          [](Case& c, Stream& stream) {
            if (stream.chance(1, 4)) c.target.table = "megatron-llama-zero-centered";
          }};
  return fault;
}

}  // namespace shardcheck::faults
