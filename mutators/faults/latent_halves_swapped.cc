// The two halves of a fused latent projection in the other order.
#include "latent.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KvFirst final : public effective::LatentEngine {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    std::vector<Tensor> shards = LatentEngine::load(tensor, degree);
    if (!tensor.name.ends_with(".qkv_a")) return shards;
    const std::int64_t q = std::get<Segments>(tensor.placement).segments.front().length() / degree;
    for (Tensor& shard : shards) shard = rolled(shard, -q + shard.dim(0));
    return shards;
  }
};

}  // namespace

// Never equivalent: the first row is one of kv_a, where it should be one of q_a.
const Fault& latent_halves_swapped() {
  static const Fault fault{
      .name = "latent_halves_swapped",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim = "A rank's part of the fused latent projection is [kv_a; q_a] where it is read as [q_a; kv_a].",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::latent,
      .effective = [](const Case& c, std::string_view) { return effective::loaded_latent(c, KvFirst()); }};
  return fault;
}

}  // namespace shardcheck::faults
