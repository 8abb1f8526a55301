// The first ranks of the job gathered as if they were a tensor parallel group.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

/// The shard of the t-th rank of the job where the t-th of the group belongs.
int as_if_first(const Mesh& mesh, Axis axis, int rank) {
  return mesh.coordinate(mesh.coordinate(rank, axis), axis);
}

bool hits(const LayoutEntry& entry, std::string_view) {
  const Mesh& mesh = entry.placed.mesh();
  return mesh.degree(Axis::tp) * mesh.degree(Axis::dp) == mesh.size() &&
         moves_along(entry, Axis::tp, as_if_first);
}

void misread(const LayoutEntry& entry, std::vector<Tensor>& shards) {
  move_along(entry, Axis::tp, as_if_first, shards);
}

}  // namespace

// Never equivalent: the second rank of the job holds a replica of the first shard, which displaces another.
const Fault& data_parallel_replicas_taken_as_shards() {
  static const Fault fault{
      .name = "data_parallel_replicas_taken_as_shards",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim =
          "A source whose data parallel ranks lie next to each other is gathered from its first ranks, so "
          "that "
          "replicas of one shard are taken for different shards.",
      .reports = {"A43"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_source_hit(c, hits,
                                 "the source has no data parallel ranks inside tensor parallel ones");
      },
      .equivalent = nullptr,
      .inject = [](std::shared_ptr<Subject> inner, const Case&,
                   std::string_view) { return misread_source(std::move(inner), hits, misread); },
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_axes(c, stream, {Axis::tp});
            c.source = {.table = stream.pick<std::string>({"seed", "vllm-llama"}),
                        .axes = {{"tp", 2}, {"dp", static_cast<int>(stream.integer(2, 3))}}};
          }};
  return fault;
}

}  // namespace shardcheck::faults
