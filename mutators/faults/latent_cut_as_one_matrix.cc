// The fused latent projection cut as if it were one matrix.
#include "latent.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class OneMatrix final : public effective::LatentEngine {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    if (!tensor.name.ends_with(".qkv_a")) return LatentEngine::load(tensor, degree);
    return LatentEngine::load({tensor.name, tensor.whole, Shard{0}}, degree);
  }
};

}  // namespace

// Never equivalent: the first block of the matrix has more rows of q_a than its share, or all of them.
const Fault& latent_cut_as_one_matrix() {
  static const Fault fault{
      .name = "latent_cut_as_one_matrix",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim =
          "The fused latent projection is built as [q_a; kv_a] of all ranks and cut into equal blocks of "
          "rows, "
          "which each rank reads as its own [q_a; kv_a].",
      .reports = {"A74"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::latent,
      .effective = [](const Case& c, std::string_view) { return effective::loaded_latent(c, OneMatrix()); }};
  return fault;
}

}  // namespace shardcheck::faults
