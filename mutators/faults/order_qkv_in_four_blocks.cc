// CodeGen's order: four blocks of q, v, k, one for each core of the machine it was trained on.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

constexpr std::int64_t kBlocks = 4;

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  if (!stacks_qkv(entry) || g.n_kv_heads % kBlocks != 0) return std::nullopt;
  const std::int64_t q = g.attention_width(), kv = g.kv_width();
  std::vector<Run> order;
  for (std::int64_t block = 0; block < kBlocks; ++block) {
    append_run(order, {block * q / kBlocks, q / kBlocks});
    append_run(order, {q + kv + block * kv / kBlocks, kv / kBlocks});
    append_run(order, {q + block * kv / kBlocks, kv / kBlocks});
  }
  return cut_in_order(entry, rank, order);
}

}  // namespace

// Never equivalent: the first row after the first quarter of q is one of v, the first row of v one of another
// part.
const Fault& order_qkv_in_four_blocks() {
  static const Fault fault{
      .name = "order_qkv_in_four_blocks",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The file's fused rows lie in four blocks of q, v, k and are cut as if all q came first, then all "
          "k, all v.",
      .reports = {"A13"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor stacks q, k and v of a number of KV heads that four divides");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream&) {
            fit_ranks(c.geometry, 4);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
