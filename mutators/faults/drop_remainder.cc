// Floor division of a vocabulary that the ranks do not divide.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut(entry) && (stacks(entry, {"embed"}) || stacks(entry, {"lm_head"})) &&
         entry.placed.shape()[0] % entry.placed.degree() != 0;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  const std::int64_t share = full.dim(0) / entry.placed.degree();
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    Tensor local = Tensor::zeros(full.dtype(), shards[rank].shape());
    const std::int64_t rows = std::min(share, local.dim(0));
    const Tensor taken = full.rows(static_cast<std::int64_t>(rank) * share, rows);
    std::ranges::copy(taken.bytes(), local.mutable_bytes().begin());
    shards[rank] = std::move(local);
  }
}

}  // namespace

// Never equivalent: rank 0 owns one row more than the floor, and it is left zero.
const Fault& drop_remainder() {
  static const Fault fault{
      .name = "drop_remainder",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim = "Every rank gets floor(n / t) vocabulary rows, and the rows of the remainder stay zero.",
      .reports = {"A59", "A93"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "the ranks divide the vocabulary, or it is not cut");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
