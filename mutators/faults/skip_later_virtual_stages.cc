// A pipeline stage of several parts of which the file is read for one.
#include <algorithm>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

/// A stage of two parts or more has its second one from the middle on.
bool is_lost(const Layout& target, const LogicalTensor& part, std::string_view) {
  if (part.layer < 0) return false;
  const StageOf stage = stage_of(target, part.layer);
  return part.layer - stage.first >= (stage.last - stage.first + 1) / 2;
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& skip_later_virtual_stages() {
  static const Fault fault{
      .name = "skip_later_virtual_stages",
      .family = 'P',
      .level = FaultLevel::sync,
      .claim =
          "The stages of a pipeline are built of two virtual parts and load the layers of the first alone, "
          "so that the others keep what they were initialised with.",
      .reports = {"A94"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (c.target.degree("pp") == 1) return "one stage: it has no virtual parts";
        return unless_lost(c, argument, is_lost, "every stage has one layer");
      },
      .equivalent = nullptr,
      .inject = loses<is_lost>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            c.geometry.n_layers = 4;
            steer_to_stages(c, stream);
          }};
  return fault;
}

}  // namespace shardcheck::faults
