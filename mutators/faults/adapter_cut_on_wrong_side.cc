// Factors of an adapter cut along its rank.
#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class CutsRank final : public effective::AdapterEngine {
  std::pair<std::int64_t, std::int64_t> products(std::int64_t rank, int degree, int on) const override {
    return {on * rank / degree, (on + 1) * rank / degree};
  }
};

}  // namespace

// Never equivalent: the products that are left out, of random numbers other than 0, do not cancel everywhere.
const Fault& adapter_cut_on_wrong_side() {
  static const Fault fault{
      .name = "adapter_cut_on_wrong_side",
      .family = 'L',
      .level = FaultLevel::plan,
      .claim =
          "The factors of an adapter are cut along its rank in place of the weight's dimension, so that a "
          "rank adds some of the products where it should add all.",
      .reports = {"A31"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, CutsRank()); }};
  return fault;
}

}  // namespace shardcheck::faults
