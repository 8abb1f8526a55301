// A buffer that a kernel reads in an order of its own, written in another.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return stacks(entry, {"o_proj"}) && entry.placed.local_shape(0)[0] > 2;
}

/// Both halves of the rows, one row of each in turn: packing[i] is the row that place i of the buffer holds.
std::vector<std::int64_t> packing(std::int64_t rows) {
  std::vector<std::int64_t> order;
  const std::int64_t half = (rows + 1) / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    order.push_back(i);
    if (half + i < rows) order.push_back(half + i);
  }
  return order;
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return places;
}

/// What the kernel takes for the rows: it undoes one packing, of bytes that had none, or two.
void hurt(const LayoutEntry&, std::string_view packed, std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) {
    const auto order = packing(shard.dim(0));
    shard = with_rows(shard, packed == "twice" ? order : inverse(order));
  }
}

}  // namespace

// Never equivalent: of three rows at least two change places.
const Fault& write_into_repacked_buffer() {
  static const Fault fault{.name = "write_into_repacked_buffer",
                           .family = 'S',
                           .level = FaultLevel::sync,
                           .claim =
                               "Rows of o_proj are written plain into a buffer that a kernel reads as "
                               "packed, or are packed twice.",
                           .reports = {"A102", "A103"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {"plain", "twice"},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "two rows are packed as they are");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
