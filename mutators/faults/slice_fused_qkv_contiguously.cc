// Seed case 1: the fused [q; k; v] rows cut as one matrix.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut(entry) && stacks(entry, {"q", "k", "v"}) &&
         entry.placed.shape()[0] % entry.placed.degree() == 0 && recuts(entry, Shard{0});
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{0}, shards);
}

}  // namespace

// Never equivalent: rank 0's contiguous part ends at or before half of the rows, where v has not begun.
const Fault& slice_fused_qkv_contiguously() {
  static const Fault fault{.name = "slice_fused_qkv_contiguously",
                           .family = 'F',
                           .level = FaultLevel::plan,
                           .claim =
                               "The fused q, k, v rows are cut as one matrix, so a rank holds query heads "
                               "without their keys and values.",
                           .reports = {"seed case 1", "A5", "A6", "A9", "A44"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits,
                                                   "no tensor stacks q, k and v over several ranks");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
