// The fused input projection of a state-space layer cut as if it were one matrix.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {
namespace {

/// Where state groups are replicated, a rank holds more than its share of the rows: that layer is right.
bool is_hit(const effective::CutTensor& tensor, int degree) {
  const auto* segments = std::get_if<Segments>(&tensor.placement);
  return segments != nullptr && tensor.name.ends_with(".in_proj") && segments->segments[2].items >= degree;
}

class OneMatrix final : public effective::Loader {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    if (!is_hit(tensor, degree)) return Loader::load(tensor, degree);
    return Loader::load({tensor.name, tensor.whole, Shard{0}}, degree);
  }
};

}  // namespace

// Never equivalent: a rank has as many rows of z as of x, and the first block of the matrix has more of z.
const Fault& in_proj_cut_as_one_matrix() {
  static const Fault fault{.name = "in_proj_cut_as_one_matrix",
                           .family = 'H',
                           .level = FaultLevel::plan,
                           .claim =
                               "The rows [z, x, B, C, dt] of a state-space layer's input projection are cut "
                               "into equal blocks, not "
                               "section by section.",
                           .reports = {"A16", "A71", "A72"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::state_space,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::loaded_state_space(c, OneMatrix());
                           }};
  return fault;
}

}  // namespace shardcheck::faults
