// Seed case 2: the right slices of one tensor, handed to the ranks in reverse.
#include "rank_order.h"

namespace shardcheck::faults {
namespace {

int mirrored(int rank, int degree) { return degree - 1 - rank; }

}  // namespace

// Never equivalent: only one tensor of a producer and consumer pair is reversed, so rows meet other columns.
const Fault& reverse_rank_order() {
  static const Fault fault{
      .name = "reverse_rank_order",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim = "One tensor is cut rightly and its slices are handed to the ranks in reverse order.",
      .reports = {"seed case 2", "A42"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = kReassignable,
      .not_applicable = [](const Case& c,
                           std::string_view group) { return cannot_reassign(c, group, mirrored); },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case&, std::string_view group) {
            return damage_entries(std::move(inner), group, can_be_reassigned,
                                  [](const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
                                    reassign(shards, mirrored);
                                  });
          }};
  return fault;
}

}  // namespace shardcheck::faults
