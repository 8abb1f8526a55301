// The size of a group worked out from local inputs and all groups.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class InfersGroup final : public effective::QuantizedEngine {
  Tensor weight(const QuantizedProblem& problem, const PlacedQuantized& placed, int rank,
                TensorMap shard) const override {
    const auto* format = std::get_if<Awq>(&problem.matrix.format);
    if (format == nullptr || problem.style != ParallelStyle::row)
      return QuantizedEngine::weight(problem, placed, rank, std::move(shard));
    for (const char* name : {"scales", "qzeros"}) shard.at(name) = problem.full.at(name);
    const std::int64_t groups = problem.full.at("scales").dim(0);
    const QuantizedMatrix seen{problem.matrix.name, Awq{placed.local_in() / groups}, placed.local_out(),
                               placed.local_in()};
    return dequantize(seen, shard);
  }
};

}  // namespace

// Never equivalent: the last input of the first rank reads the last of all groups, which is the last rank's.
const Fault& group_size_from_local_shape() {
  static const Fault fault{
      .name = "group_size_from_local_shape",
      .family = 'Q',
      .level = FaultLevel::plan,
      .claim =
          "Scales and zeros of a row-parallel weight are on every rank whole, and the kernel divides the "
          "local inputs by their number, so that it takes groups for smaller than they are.",
      .reports = {"A75", "A76", "A77"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::quantized,
      .effective = [](const Case& c, std::string_view) {
        return effective::dequantized_weights(c, InfersGroup());
      }};
  return fault;
}

}  // namespace shardcheck::faults
