// As many blocks of scales for every rank, rounded down.
#include <algorithm>

#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class RoundsDown final : public effective::QuantizedEngine {
  std::int64_t block_of(const effective::BlockRow& at) const override {
    const std::int64_t own = at.blocks / at.degree;
    return at.rank * own + std::min(at.row / at.block, own - 1);
  }
};

}  // namespace

// Never equivalent: the first rank has rows of half a block more than its blocks have.
const Fault& block_scales_split_evenly() {
  static const Fault fault{.name = "block_scales_split_evenly",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "Every rank gets the number of blocks divided by the ranks and rounded down, "
                               "although ranks end inside blocks.",
                           .reports = {"A78", "A80", "A83", "A84"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, RoundsDown());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
