// A convolution whose rows are found as if each had one tap.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {
namespace {

/// As many elements as the runs have, each from as many elements on as it should be rows.
std::vector<float> found_by_element(const Tensor& whole, const std::vector<Run>& runs) {
  std::vector<float> found;
  for (const Run& run : runs) {
    const auto elements = whole.f32().subspan(static_cast<std::size_t>(run.global),
                                              static_cast<std::size_t>(run.length * whole.dim(1)));
    found.insert(found.end(), elements.begin(), elements.end());
  }
  return found;
}

class WithoutKernelDim final : public effective::Loader {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    std::vector<Tensor> shards = Loader::load(tensor, degree);
    if (!tensor.name.ends_with(".conv1d")) return shards;
    const PlacedTensor placed(tensor.name, tensor.whole.shape(), tensor.placement, degree);
    for (int rank = 0; rank < degree; ++rank) {
      const auto wrong = found_by_element(tensor.whole, placed.selection(rank).runs);
      std::ranges::copy(wrong, shards[static_cast<std::size_t>(rank)].mutable_f32().begin());
    }
    return shards;
  }
};

}  // namespace

// Never equivalent: the channels of the second rank do not begin at element 0.
const Fault& conv_taps_taken_for_channels() {
  static const Fault fault{.name = "conv_taps_taken_for_channels",
                           .family = 'H',
                           .level = FaultLevel::plan,
                           .claim =
                               "The dimension of the taps is dropped when the channels of a convolution are "
                               "dealt out, so that a channel's number is taken for that of an element.",
                           .reports = {"A73"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::state_space,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::loaded_state_space(c, WithoutKernelDim());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
