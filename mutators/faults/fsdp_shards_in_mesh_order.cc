// FSDP cut what tensor parallelism had cut, and the shards are put together in the order of the mesh.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

void misread(const LayoutEntry& entry, std::vector<Tensor>& shards) {
  shards = split_tensor(entry.placed, in_rank_order(entry, shards));
}

}  // namespace

// Never equivalent: rows of the query, the gates and the vocabulary change places, the columns that meet them
// do not.
const Fault& fsdp_shards_in_mesh_order() {
  static const Fault fault{
      .name = "fsdp_shards_in_mesh_order",
      .family = 'X',
      .level = FaultLevel::plan,
      .claim =
          "A source that FSDP cut after tensor parallelism is gathered in the order of the mesh, data "
          "parallel "
          "ranks first.",
      .reports = {"A91"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        return unless_source_hit(c, is_cut_twice_out_of_order,
                                 "no tensor of the source is cut over tp and dp out of the mesh's order");
      },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case&, std::string_view) {
            return misread_source(std::move(inner), is_cut_twice_out_of_order, misread);
          },
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_axes(c, stream, {Axis::tp});
            c.source = {.table = "fsdp2-tp",
                        .axes = {{"dp", static_cast<int>(stream.integer(2, 3))}, {"tp", 2}}};
          }};
  return fault;
}

}  // namespace shardcheck::faults
