// Shards of an expert taken for copies of it.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

int first(const Mesh&, Axis, int) { return 0; }

bool is_cut_expert(const LayoutEntry& entry, std::string_view) {
  return entry.parts.front().expert >= 0 &&
         (moves_along(entry, Axis::tp, first) || moves_along(entry, Axis::etp, first));
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  for (const Axis axis : {Axis::tp, Axis::etp}) move_along(entry, axis, first, shards);
}

}  // namespace

// Never equivalent: the first rank's channels are added once for every rank, the others' never.
const Fault& expert_tp_shards_taken_as_replicas() {
  static const Fault fault{
      .name = "expert_tp_shards_taken_as_replicas",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "Every rank of an expert tensor parallel group loads the first rank's shard of the experts.",
      .reports = {"A36", "A70"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, is_cut_expert, "no expert is cut");
          },
      .equivalent = nullptr,
      .inject = with_hurt<is_cut_expert, hurt>,
      .meshes = true,
      .steer = [](Case& c, Stream& stream) { steer_to_cut_experts(c, stream); }};
  return fault;
}

}  // namespace shardcheck::faults
