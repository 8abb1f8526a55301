// State groups dealt out in turn instead of held by neighbouring ranks.
#include "plan_fault.h"
#include "state_space.h"

namespace shardcheck::faults {
namespace {

/// Rank r holds group r % groups of B and C where it should hold group r / (ranks / groups).
class InTurn final : public effective::Loader {
  std::vector<Tensor> load(const effective::CutTensor& tensor, int degree) const override {
    std::vector<Tensor> shards = Loader::load(tensor, degree);
    const auto* segments = std::get_if<Segments>(&tensor.placement);
    if (segments == nullptr) return shards;
    const std::vector<Tensor> right = shards;
    for (int rank = 0; rank < degree; ++rank) {
      std::vector<Tensor> parts;
      std::int64_t begin = 0;
      for (const Segment& segment : segments->segments) {
        const bool lent = segment.replicates && segment.items < degree;
        const std::int64_t rows = lent ? segment.unit : segment.length() / degree;
        const std::int64_t from = lent ? rank % segment.items * (degree / segment.items) : rank;
        parts.push_back(right[static_cast<std::size_t>(from)].rows(begin, rows));
        begin += rows;
      }
      shards[static_cast<std::size_t>(rank)] = stacked(parts);
    }
    return shards;
  }
};

std::optional<std::string> equivalent(const Case& c, std::string_view) {
  if (effective::state_space_layers(c).back().groups > 1) return std::nullopt;
  return "one state group: both rules give it to every rank";
}

}  // namespace

const Fault& state_groups_not_replicated() {
  static const Fault fault{
      .name = "state_groups_not_replicated",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim =
          "With fewer state groups than ranks, groups are dealt out in turn, so that a rank's heads read a "
          "group that is not theirs.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = equivalent,
      .kind = EffectiveKind::state_space,
      .effective = [](const Case& c, std::string_view) {
        return effective::loaded_state_space(c, InTurn());
      }};
  return fault;
}

}  // namespace shardcheck::faults
