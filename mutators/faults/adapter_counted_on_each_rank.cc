// An expert's adapter added by every rank of its expert.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class EachRank final : public effective::AdapterEngine {
  int adding_ranks(int degree) const override { return degree; }
};

}  // namespace

// Never equivalent: products of random numbers other than 0 do not vanish everywhere.
const Fault& adapter_counted_on_each_rank() {
  static const Fault fault{
      .name = "adapter_counted_on_each_rank",
      .family = 'L',
      .level = FaultLevel::value,
      .claim =
          "Ranks hold partial sums of an expert and the whole of its adapter, and each of them adds it, so "
          "that the reduced sum has it once per rank.",
      .reports = {"A97"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, EachRank()); }};
  return fault;
}

}  // namespace shardcheck::faults
