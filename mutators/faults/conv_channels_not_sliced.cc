// Every rank's convolution given the first channels.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {
namespace {

class FirstChannels final : public effective::Loader {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    std::vector<Tensor> shards = Loader::load(tensor, degree);
    if (!tensor.name.ends_with(".conv1d")) return shards;
    for (Tensor& shard : shards) shard = tensor.whole.rows(0, shard.dim(0));
    return shards;
  }
};

}  // namespace

// Never equivalent: the second rank's first channel is not the first one.
const Fault& conv_channels_not_sliced() {
  static const Fault fault{
      .name = "conv_channels_not_sliced",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim = "The convolution of a state-space layer is not sliced: every rank reads the first channels.",
      .reports = {"A73"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::state_space,
      .effective = [](const Case& c, std::string_view) {
        return effective::loaded_state_space(c, FirstChannels());
      }};
  return fault;
}

}  // namespace shardcheck::faults
