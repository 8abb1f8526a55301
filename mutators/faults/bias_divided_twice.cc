// A row-parallel bias divided by the number of ranks once more than its encoding says.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view encoding) {
  if (!belongs_to(entry, "o_bias") && !belongs_to(entry, "down_bias")) return false;
  if (entry.placed.degree() == 1) return false;
  if (encoding == "whole") return entry.placed.is_replicated() && !entry.placed.is_partial();
  const auto* partial = std::get_if<Partial>(&entry.placed.placement());
  return partial != nullptr && partial->encoding == Partial::Encoding::equal_share;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const auto ranks = static_cast<float>(entry.placed.degree());
  for (Tensor& shard : shards) change_values(shard, [ranks](float value) { return value / ranks; });
}

}  // namespace

// Never equivalent: random biases are not zero.
const Fault& bias_divided_twice() {
  static const Fault fault{
      .name = "bias_divided_twice",
      .family = 'B',
      .level = FaultLevel::value,
      .claim =
          "A row-parallel bias is divided by the number of ranks once too often: twice where ranks add "
          "shares of it, once where it is added whole after the sum.",
      .reports = {"A46", "A47"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"whole", "share"},
      .not_applicable =
          [](const Case& c, std::string_view encoding) {
            return unless_hit(c, encoding, hits, "one rank, or no bias of this encoding");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .steer = give_row_biases};
  return fault;
}

}  // namespace shardcheck::faults
