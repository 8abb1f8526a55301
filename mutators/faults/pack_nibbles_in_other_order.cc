// Packed columns of AWQ read in linear order.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class ReadsInOrder final : public effective::DamagedStorage<Awq> {
  void damage(const QuantizedProblem&, const Awq&, int, TensorMap& shard) const override {
    Tensor& words = shard.at("qweight");
    words = awq_pack(gptq_unpack(words, 4, 1));
  }
};

}  // namespace

// Never equivalent: six of eight columns are others, and there are at least eight rows of random words.
const Fault& pack_nibbles_in_other_order() {
  static const Fault fault{.name = "pack_nibbles_in_other_order",
                           .family = 'Q',
                           .level = FaultLevel::value,
                           .claim =
                               "The eight 4-bit columns of a word are taken in the order of their bits, "
                               "where the format puts them in another.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, ReadsInOrder());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
