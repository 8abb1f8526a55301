// The right slices of one tensor, each handed to the next rank.
#include "rank_order.h"

namespace shardcheck::faults {
namespace {

int previous(int rank, int degree) { return (rank + degree - 1) % degree; }

}  // namespace

// Never equivalent: only one tensor of a producer and consumer pair is rotated, so rows meet other columns.
const Fault& rotate_rank_order() {
  static const Fault fault{
      .name = "rotate_rank_order",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim = "One tensor is cut rightly and every slice is handed to the next rank.",
      .reports = {"A42", "A43"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = kReassignable,
      .not_applicable = [](const Case& c,
                           std::string_view group) { return cannot_reassign(c, group, previous); },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case&, std::string_view group) {
            return damage_entries(std::move(inner), group, can_be_reassigned,
                                  [](const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
                                    reassign(shards, previous);
                                  });
          }};
  return fault;
}

}  // namespace shardcheck::faults
