// Gate and up rows alternating, read by a consumer of halves.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return stacks(entry, {"gate", "up"}); }

void hurt(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) {
    const std::int64_t half = shard.dim(0) / 2;
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < half; ++i) {
      order.push_back(i);
      order.push_back(half + i);
    }
    shard = with_rows(shard, order);
  }
}

}  // namespace

const Fault& interleave_gate_and_up() {
  static const Fault fault{
      .name = "interleave_gate_and_up",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "The local gate and up rows alternate where the consumer reads halves.",
      .reports = {"A18", "A20"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "no tensor stacks gate and up");
          },
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.ffn != c.target.tp_degree()) return std::nullopt;
        return "one channel on each rank: alternating is halves, the index maps are equal";
      },
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
