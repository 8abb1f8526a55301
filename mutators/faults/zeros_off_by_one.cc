// Zeros of GPTQ taken as they are stored.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class AsStored final : public effective::DamagedStorage<Gptq> {
  /// One less, so that the reader that adds one gets the stored number; 0 has none below it, and stays.
  void damage(const QuantizedProblem&, const Gptq& format, int, TensorMap& shard) const override {
    Tensor zeros = gptq_unpack(shard.at("qzeros"), format.bits, 1);
    for (std::uint8_t& zero : zeros.mutable_as<std::uint8_t>())
      zero = static_cast<std::uint8_t>(zero - (zero > 0 ? 1 : 0));
    shard.at("qzeros") = gptq_pack(zeros, format.bits, 1);
  }
};

}  // namespace

// Never equivalent: random zeros are not all 0.
const Fault& zeros_off_by_one() {
  static const Fault fault{
      .name = "zeros_off_by_one",
      .family = 'Q',
      .level = FaultLevel::value,
      .claim = "The stored zeros of a GPTQ weight are used as they are, although the format stores one less.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::quantized,
      .effective = [](const Case& c, std::string_view) {
        return effective::dequantized_weights(c, AsStored());
      }};
  return fault;
}

}  // namespace shardcheck::faults
