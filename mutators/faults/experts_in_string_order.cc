// Experts enumerated by the text of their numbers: 0, 1, 10, 11, 2, ...
#include <algorithm>
#include <numeric>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

std::optional<Place> origin(const Layout& target, const LogicalTensor& part) {
  if (part.expert < 0) return place_of(part);
  std::vector<std::int64_t> order(static_cast<std::size_t>(target.geometry.n_experts));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::sort(order, {}, [](std::int64_t expert) { return std::to_string(expert); });
  return Place{part.layer, order[static_cast<std::size_t>(part.expert)]};
}

}  // namespace

// Never equivalent: the experts are drawn independently, and every token meets a wrong one.
const Fault& experts_in_string_order() {
  static const Fault fault{
      .name = "experts_in_string_order",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "Experts are stacked in the order of their names' texts, 10 before 2.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_experts_misplaced(c, origin, "ten experts or fewer are in order as texts too");
      },
      .equivalent = nullptr,
      .inject = with_places<origin>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_experts(c, stream);
            c.geometry.n_experts = 2 * stream.integer(6, 8);
            c.geometry.experts_per_token = 3;  // two stay in place
          }};
  return fault;
}

}  // namespace shardcheck::faults
