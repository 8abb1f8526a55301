// A sync that never happens.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool is_lost(const Layout&, const LogicalTensor&, std::string_view) { return true; }

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& skip_update() {
  static const Fault fault{.name = "skip_update",
                           .family = 'S',
                           .level = FaultLevel::sync,
                           .claim =
                               "No weight is sent, as if a flag that has nothing to do with it were off, and "
                               "the whole model keeps an earlier version.",
                           .reports = {"A101"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_lost(c, argument, is_lost, "there are no weights");
                               },
                           .equivalent = nullptr,
                           .inject = loses<is_lost>,
                           .meshes = true};
  return fault;
}

}  // namespace shardcheck::faults
