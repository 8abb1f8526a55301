// The bias of a fused tensor that does not follow its weight.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut(entry) && stacks(entry, {"q_bias", "k_bias", "v_bias"}) &&
         entry.placed.shape()[0] % entry.placed.degree() == 0 && recuts(entry, Shard{0});
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{0}, shards);
}

}  // namespace

// Never equivalent: rank 0's contiguous part ends before the bias of v begins, and that bias reaches the
// logits.
const Fault& slice_fused_bias_contiguously() {
  static const Fault fault{.name = "slice_fused_bias_contiguously",
                           .family = 'F',
                           .level = FaultLevel::plan,
                           .claim = "The fused q, k, v weight is cut per head and its bias as one vector.",
                           .reports = {"A5", "A81"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(
                                     c, argument, hits,
                                     "no tensor stacks the biases of q, k and v over several ranks");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
