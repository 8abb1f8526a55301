// A square row-parallel weight cut along dimension 0: shapes cannot tell.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const Shape& shape = entry.placed.shape();
  const auto* shard = std::get_if<Shard>(&entry.placed.placement());
  return is_cut(entry) && stacks(entry, {"o_proj"}) && shape[0] == shape[1] && shard != nullptr &&
         shard->dim == 1 && shape[0] % entry.placed.degree() == 0;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{0}, shards);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    shards[rank] = shards[rank].reshaped(entry.placed.local_shape(static_cast<int>(rank)));
  }
}

}  // namespace

// Never equivalent: with two ranks or more, element (1, 0) of rank 0 comes from row 0, or from (0, 1).
const Fault& wrong_dim_square() {
  static const Fault fault{.name = "wrong_dim_square",
                           .family = 'A',
                           .level = FaultLevel::plan,
                           .claim =
                               "A square output projection is cut along dimension 0 and its block read in "
                               "the shape of dimension 1.",
                           .reports = {"A31", "A33", "A37", "A34", "A35"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(
                                     c, argument, hits,
                                     "the output projection is not square or not cut over several ranks");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
