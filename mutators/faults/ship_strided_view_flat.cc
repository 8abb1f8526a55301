// A rank's columns of a matrix sent as the bytes that follow their first one in memory.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const auto* shard = std::get_if<Shard>(&entry.placed.placement());
  return shard != nullptr && shard->dim == 1 && entry.placed.shape().size() == 2 && is_cut(entry) &&
         entry.placed.shape()[0] > 1;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  std::size_t first = 0;
  for (Tensor& shard : shards) {
    const auto flat = full.bytes().subspan(first, shard.bytes().size());
    first += row_bytes(shard);
    std::ranges::copy(flat, shard.mutable_bytes().begin());
  }
}

}  // namespace

// Never equivalent: the second row of a rank's columns is not what follows the first in memory.
const Fault& ship_strided_view_flat() {
  static const Fault fault{
      .name = "ship_strided_view_flat",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "A shard cut by columns is shipped as contiguous bytes of the matrix it is a view of.",
      .reports = {"A107"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "no shard is a strided view");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
