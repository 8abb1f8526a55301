// One key for all layers of a scan, which each of them overwrites.
#include <algorithm>

#include "mesh_fault.h"
#include "steering.h"

namespace shardcheck::faults {
namespace {

bool is_lost(const Layout& target, const LogicalTensor& part, std::string_view) {
  return part.layer >= 0 && part.layer < target.geometry.n_layers - 1;
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& deliver_last_layer_alone() {
  static const Fault fault{.name = "deliver_last_layer_alone",
                           .family = 'P',
                           .level = FaultLevel::sync,
                           .claim =
                               "All layers of a scan are sent under one name, so that only the last one "
                               "arrives and the others keep an earlier version.",
                           .reports = {"A68"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_lost(c, argument, is_lost, "one layer: it is the last");
                               },
                           .equivalent = nullptr,
                           .inject = loses<is_lost>,
                           .meshes = true,
                           .steer =
                               [](Case& c, Stream&) {
                                 c.geometry.n_layers = std::max<std::int64_t>(c.geometry.n_layers, 2);
                                 settle(c);
                               }};
  return fault;
}

}  // namespace shardcheck::faults
