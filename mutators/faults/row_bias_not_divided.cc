// Shares of a row-parallel bias, each of them all of it.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view encoding) {
  const auto* partial = std::get_if<Partial>(&entry.placed.placement());
  const bool shared = partial != nullptr && partial->encoding == Partial::Encoding::equal_share;
  return partial != nullptr && entry.placed.degree() > 1 && shared == (encoding == "equal_share");
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const Tensor whole = gather_tensor(entry.placed, shards);
  for (Tensor& shard : shards) shard = whole;
}

}  // namespace

// Never equivalent: random biases are not zero.
const Fault& row_bias_not_divided() {
  static const Fault fault{
      .name = "row_bias_not_divided",
      .family = 'B',
      .level = FaultLevel::value,
      .claim =
          "Every rank holds the whole of a row-parallel bias where the sum over ranks is to be the bias.",
      .reports = {"A46", "A47"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"first_rank", "equal_share"},
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
