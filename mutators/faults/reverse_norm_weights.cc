// Entries of a norm in another order than the channels they scale.
#include <algorithm>
#include <numeric>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_norm(entry) && entry.placed.shape()[0] > 1;
}

void hurt(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  Tensor& last = shards.back();
  std::vector<std::int64_t> order(static_cast<std::size_t>(last.dim(0)));
  std::iota(order.rbegin(), order.rend(), std::int64_t{0});
  last = with_rows(last, order);
}

}  // namespace

// Never equivalent: a random weight reads otherwise from its end.
const Fault& reverse_norm_weights() {
  static const Fault fault{
      .name = "reverse_norm_weights",
      .family = 'N',
      .level = FaultLevel::value,
      .claim = "The last rank holds the entries of its norm weights in reverse, beside right ones elsewhere.",
      .reports = {"seed case 3"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "every norm has one entry");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
