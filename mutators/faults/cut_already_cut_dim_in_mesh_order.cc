// A dimension that tensor parallelism cuts, cut over the data parallel ranks first.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

/// Rows dealt out in the order of the ranks, which is that of the mesh.
void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  std::int64_t first = 0;
  for (Tensor& shard : shards) {
    const std::int64_t rows = shard.dim(0);
    shard = full.rows(first, rows);
    first += rows;
  }
}

}  // namespace

// Never equivalent: in the order of the ranks the rows are not in their own.
const Fault& cut_already_cut_dim_in_mesh_order() {
  static const Fault fault{
      .name = "cut_already_cut_dim_in_mesh_order",
      .family = 'X',
      .level = FaultLevel::plan,
      .claim =
          "A dimension that tensor parallelism has cut is cut over the data parallel ranks as if they came "
          "first, not inside each tensor parallel shard.",
      .reports = {"A3"},
      .oracles = {Oracle::layout},  // no forward pass reads shards that FSDP has cut
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, is_cut_twice_out_of_order,
                              "no tensor is cut over tp and dp out of the mesh's order");
          },
      .equivalent = nullptr,
      .inject = with_hurt<is_cut_twice_out_of_order, hurt>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_axes(c, stream, {});
            c.target = {.table = "fsdp2-tp",
                        .axes = {{"dp", static_cast<int>(stream.integer(2, 4))}, {"tp", 2}}};
          }};
  return fault;
}

}  // namespace shardcheck::faults
