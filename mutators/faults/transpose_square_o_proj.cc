// A square weight transposed once too often: shapes cannot tell.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const Shape& shape = entry.placed.shape();
  return stacks(entry, {"o_proj"}) && shape[0] == shape[1] && shape[0] > 1;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  shards = split_tensor(entry.placed, transposed(gather_tensor(entry.placed, shards)));
}

}  // namespace

// Never equivalent: a random matrix of two rows or more is not symmetric.
const Fault& transpose_square_o_proj() {
  static const Fault fault{.name = "transpose_square_o_proj",
                           .family = 'A',
                           .level = FaultLevel::plan,
                           .claim = "A square output projection is transposed before it is cut.",
                           .reports = {"A18", "A37", "A38", "A40"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "the output projection is not square");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
