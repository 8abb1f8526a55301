// Offset and length of the block scales of a rank rounded up, each on its own.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class RoundsUp final : public effective::QuantizedEngine {
  std::int64_t block_of(const effective::BlockRow& at) const override {
    return (at.begin + at.block - 1) / at.block + at.row / at.block;
  }
};

}  // namespace

// Never equivalent: the second rank begins half-way through a block, and no two scales are equal.
const Fault& block_scale_offsets_rounded_alone() {
  static const Fault fault{.name = "block_scale_offsets_rounded_alone",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "The first block of a rank is its first row divided by the block and rounded "
                               "up, and its rows count from there, although the rank begins inside a block.",
                           .reports = {"A79", "A82"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, RoundsUp());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
