// The stacked [gate; up] rows cut as one matrix.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut(entry) && stacks(entry, {"gate", "up"}) &&
         entry.placed.shape()[0] % entry.placed.degree() == 0 && recuts(entry, Shard{0});
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{0}, shards);
}

}  // namespace

// Never equivalent: rank 0's contiguous part ends at or before the first row of up.
const Fault& slice_fused_gate_up_contiguously() {
  static const Fault fault{
      .name = "slice_fused_gate_up_contiguously",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "The stacked gate and up rows are cut as one matrix, so gates meet the wrong channels.",
      .reports = {"A1", "A5", "A10"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "no tensor stacks gate and up over several ranks");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
