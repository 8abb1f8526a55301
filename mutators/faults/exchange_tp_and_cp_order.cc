// Ranks of a mesh with tensor and context parallelism numbered in the other order.
#include <algorithm>

#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool is_tp_or_cp(const std::pair<Axis, int>& axis) {
  return axis.first == Axis::tp || axis.first == Axis::cp;
}

int in_other_order(const Mesh& mesh, Axis axis, int rank) {
  auto axes = mesh.axes();
  const auto outer = std::ranges::find_if(axes, is_tp_or_cp);
  std::iter_swap(outer, std::find_if(std::next(outer), axes.end(), is_tp_or_cp));
  return Mesh(std::move(axes)).coordinate(rank, axis);
}

bool hits(const LayoutEntry& entry, std::string_view) {
  const Mesh& mesh = entry.placed.mesh();
  return mesh.degree(Axis::cp) > 1 && mesh.degree(Axis::tp) > 1 &&
         moves_along(entry, Axis::tp, in_other_order);
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  move_along(entry, Axis::tp, in_other_order, shards);
}

}  // namespace

// Never equivalent: a rank gets a shard that differs from its own.
const Fault& exchange_tp_and_cp_order() {
  static const Fault fault{.name = "exchange_tp_and_cp_order",
                           .family = 'R',
                           .level = FaultLevel::plan,
                           .claim =
                               "Tensor parallel shards are handed out as if context parallelism were the "
                               "inner axis of the mesh where it is the outer one, or the reverse.",
                           .reports = {"A42"},
                           .oracles = {Oracle::layout},  // ranks along cp that own no key compute nothing
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "no shards are cut over tp beside cp");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>,
                           .meshes = true,
                           .steer =
                               [](Case& c, Stream& stream) {
                                 steer_to_axes(c, stream, {Axis::tp, Axis::cp});
                               }};
  return fault;
}

}  // namespace shardcheck::faults
