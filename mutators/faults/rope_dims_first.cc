// The rotated dimensions of a latent query put before the others.
#include "latent.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class RopeFirst final : public effective::LatentEngine {
 public:
  explicit RopeFirst(std::int64_t nope) : nope_(nope) {}
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    std::vector<Tensor> shards = LatentEngine::load(tensor, degree);
    if (!tensor.name.ends_with(".q_b")) return shards;
    const std::int64_t width = std::get<Shard>(tensor.placement).unit;
    for (Tensor& shard : shards) {
      std::vector<std::int64_t> order;
      for (std::int64_t row = 0; row < shard.dim(0); ++row)
        order.push_back(row / width * width + (row % width + nope_) % width);
      shard = with_rows(shard, order);
    }
    return shards;
  }

 private:
  std::int64_t nope_;
};

}  // namespace

// Never equivalent: the first row is one that is rotated, where it should be one that is not.
const Fault& rope_dims_first() {
  static const Fault fault{
      .name = "rope_dims_first",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim =
          "The rows of a head's latent query that are rotated come before those that are not, where they are "
          "read after them.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::latent,
      .effective = [](const Case& c, std::string_view) {
        return effective::loaded_latent(c, RopeFirst(effective::latent_sizes(c).nope));
      }};
  return fault;
}

}  // namespace shardcheck::faults
