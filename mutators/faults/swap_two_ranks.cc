// The right slices of one tensor, two of them exchanged.
#include "rank_order.h"

namespace shardcheck::faults {
namespace {

int exchanged(int rank, int) { return rank < 2 ? 1 - rank : rank; }

std::optional<std::string> not_applicable(const Case& c, std::string_view group) {
  if (c.target.tp_degree() < 3) return "fewer than three ranks: to exchange them is to reverse them";
  return cannot_reassign(c, group, exchanged);
}

}  // namespace

// Never equivalent: only one tensor of a producer and consumer pair is touched, so rows meet other columns.
const Fault& swap_two_ranks() {
  static const Fault fault{
      .name = "swap_two_ranks",
      .family = 'R',
      .level = FaultLevel::plan,
      .claim = "One tensor is cut rightly and the first two of three ranks or more hold each other's slice.",
      .reports = {"A42"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"down", "qkv"},
      .not_applicable = not_applicable,
      .equivalent = nullptr,
      .inject = [](std::shared_ptr<Subject> inner, const Case&, std::string_view group) {
        return damage_entries(std::move(inner), group, can_be_reassigned,
                              [](const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
                                reassign(shards, exchanged);
                              });
      }};
  return fault;
}

}  // namespace shardcheck::faults
