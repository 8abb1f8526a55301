// A section of a fused projection at an offset written by hand.
#include <numeric>

#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {
namespace {

constexpr std::size_t kSection = 3;  // C of [z, x, B, C, dt]

class OneRowEarly final : public effective::Loader {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    if (!tensor.name.ends_with(".in_proj")) return Loader::load(tensor, degree);
    const Segment& section = std::get<Segments>(tensor.placement).segments[kSection];
    effective::Rows order(static_cast<std::size_t>(tensor.whole.dim(0)));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < section.length(); ++i)
      order[static_cast<std::size_t>(section.begin + i)] -= 1;
    return Loader::load({tensor.name, with_rows(tensor.whole, order), tensor.placement}, degree);
  }
};

}  // namespace

// Never equivalent: no two rows are equal.
const Fault& in_proj_section_one_row_early() {
  static const Fault fault{.name = "in_proj_section_one_row_early",
                           .family = 'H',
                           .level = FaultLevel::plan,
                           .claim =
                               "The offset of one of the five sections of a state-space layer's input "
                               "projection is one row short, so that its rows are the ones before.",
                           .reports = {"A16"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::state_space,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::loaded_state_space(c, OneRowEarly());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
