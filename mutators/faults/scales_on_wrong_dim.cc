// Block scales cut along the outputs under a weight that is cut along its inputs.
#include "plan_fault.h"
#include "quantized_engine.h"

namespace shardcheck::faults {
namespace {

class CutsOutputs final : public effective::DamagedStorage<Mxfp8> {
  /// As many bytes as the right ones: the kernel reads them by the extents that it computes.
  void damage(const QuantizedProblem& problem, const Mxfp8&, int rank, TensorMap& shard) const override {
    Tensor& scales = shard.at("weight_scale");
    const Tensor& whole = problem.full.at("weight_scale");
    const std::int64_t rows = whole.dim(0) / problem.degree;
    scales = whole.rows(rank * rows, rows).reshaped(scales.shape());
  }
};

}  // namespace

// Never equivalent: of the scales on a rank, most belong to other outputs and inputs, and they are random.
const Fault& scales_on_wrong_dim() {
  static const Fault fault{.name = "scales_on_wrong_dim",
                           .family = 'Q',
                           .level = FaultLevel::plan,
                           .claim =
                               "The scales of a row-parallel weight are cut along its outputs, and what a "
                               "rank gets is read as the scales of its inputs.",
                           .reports = {"A32"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::quantized,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::dequantized_weights(c, CutsOutputs());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
