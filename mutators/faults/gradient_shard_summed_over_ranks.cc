// The gradients of a column-parallel weight summed over its ranks.
#include "gradients.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class SumsShards final : public effective::GradientSteps {
  int reductions_of_shards() const override { return 1; }
};

}  // namespace

// Never equivalent: the gradients of other ranks are whole numbers other than 0, and do not cancel
// everywhere.
const Fault& gradient_shard_summed_over_ranks() {
  static const Fault fault{.name = "gradient_shard_summed_over_ranks",
                           .family = 'K',
                           .level = FaultLevel::gradient,
                           .claim =
                               "The gradient of a column-parallel weight, of which every rank has its own "
                               "rows, is summed over the ranks, so that each steps by what others should.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::gradient,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::reduced_gradients(c, SumsShards());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
