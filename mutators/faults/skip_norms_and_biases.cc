// An update that goes by patterns of names and has none for vectors.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool is_skipped(const LayoutEntry& entry, const Layout&) {
  return entry.name.find("norm") != std::string::npos || entry.name.find("bias") != std::string::npos;
}

void damage(const Case& c, const Layout& target, std::string_view, ShardedTensors& shards) {
  const TensorMap earlier = earlier_weights(c, dtype_of(shards));
  for (const LayoutEntry& entry : target.entries) {
    if (is_skipped(entry, target)) shards.at(entry.name) = split_tensor(entry.placed, fuse(entry, earlier));
  }
}

}  // namespace

// Never equivalent: two seeds draw different weights.
const Fault& skip_norms_and_biases() {
  static const Fault fault{
      .name = "skip_norms_and_biases",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "Tensors named norm or bias are not sent and keep an earlier version of the model.",
      .reports = {"A16", "A104"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view) {
            return unless_any(c, is_skipped, "no tensor of the target is named norm or bias");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
