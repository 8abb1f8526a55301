// Rows of a fused adapter dealt to its parts in equal numbers.
#include <algorithm>
#include <numeric>

#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Uniform final : public effective::AdapterEngine {
  std::int64_t part_of(const std::vector<std::int64_t>& parts, std::int64_t row) const override {
    const std::int64_t rows = std::reduce(parts.begin(), parts.end());
    return row / ((rows + std::ssize(parts) - 1) / std::ssize(parts));
  }
};

std::optional<std::string> equivalent(const Case& c, std::string_view) {
  for (const effective::AdaptedWeight& weight : effective::adapted_weights(c)) {
    const auto parts = effective::local_parts(weight, c.target.tp_degree());
    if (std::ranges::count(parts, parts.front()) != std::ssize(parts)) return std::nullopt;
  }
  return "q, k and v are equally wide on a rank: uniform slices are theirs";
}

}  // namespace

const Fault& adapter_fused_slices_uniform() {
  static const Fault fault{
      .name = "adapter_fused_slices_uniform",
      .family = 'L',
      .level = FaultLevel::plan,
      .claim =
          "The parts of a fused adapter are taken to be of one width, so that rows of k and v get the factor "
          "of another part where q is wider.",
      .reports = {"A96"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = equivalent,
      .kind = EffectiveKind::adapter,
      .effective = [](const Case& c, std::string_view) { return effective::adapted(c, Uniform()); }};
  return fault;
}

}  // namespace shardcheck::faults
