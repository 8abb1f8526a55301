// A square down projection transposed once too often: shapes cannot tell.
#include "plan_fault.h"
#include "steering.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const Shape& shape = entry.placed.shape();
  return stacks(entry, {"down"}) && shape[0] == shape[1] && shape[0] > 1;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  shards = split_tensor(entry.placed, transposed(gather_tensor(entry.placed, shards)));
}

}  // namespace

// Never equivalent: a random matrix of two rows or more is not symmetric.
const Fault& transpose_square_down() {
  static const Fault fault{.name = "transpose_square_down",
                           .family = 'A',
                           .level = FaultLevel::plan,
                           .claim = "A square down projection is transposed before it is cut.",
                           .reports = {"A18", "A37", "A39", "A40"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "no down projection is square");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>,
                           .steer = [](Case& c, Stream&) { c.geometry.d_model = c.geometry.ffn; }};
  return fault;
}

}  // namespace shardcheck::faults
