// Stacked experts cut along the dimension that counts them.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const PlacedTensor& placed = entry.placed;
  if (entry.parts.front().expert < 0 || placed.degree() == 1 || placed.shape().size() != 3) return false;
  const Shape local = placed.local_shape(0);
  return local[0] == placed.shape()[0] && local[0] % placed.degree() == 0 &&
         element_count(local) * placed.degree() == element_count(placed.shape());
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{0}, shards);
  for (Tensor& shard : shards) shard = shard.reshaped(entry.placed.local_shape(0));
}

}  // namespace

// Never equivalent: rank 0 has more rows of its first expert than are its own.
const Fault& cut_experts_along_expert_dim() {
  static const Fault fault{
      .name = "cut_experts_along_expert_dim",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "Stacked experts that tensor parallelism cuts inside every expert are cut along the dimension that "
          "counts experts and read in the shape of the right cut.",
      .reports = {"A69"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits,
                              "no stacked experts are cut over ranks that divide their number");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_cut_experts(c, stream);
            c.target.table = "vllm-moe";
          }};
  return fault;
}

}  // namespace shardcheck::faults
