// The transpose that a square expert hides.
#include "plan_fault.h"
#include "steering.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  const Shape& shape = entry.placed.shape();
  return stacks(entry, {"expert_down"}) && shape[0] == shape[1] && shape[0] > 1;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  shards = split_tensor(entry.placed, transposed(gather_tensor(entry.placed, shards)));
}

}  // namespace

// Never equivalent: a random matrix of two rows or more is not symmetric.
const Fault& transpose_square_experts() {
  static const Fault fault{
      .name = "transpose_square_experts",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "The down projections of experts as wide as the hidden state are transposed before they are cut.",
      .reports = {"A18", "A37", "A38", "A69"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "no expert down projection is square");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 3));
            fit_ranks(c.geometry, ranks);
            c.geometry.d_model += (ranks - c.geometry.d_model % ranks) % ranks;
            c.geometry.n_experts = 4;
            c.geometry.expert_ffn = c.geometry.d_model;
            c.source = over_ranks("seed", 1);
            c.target = over_ranks("seed", ranks);
          }};
  return fault;
}

}  // namespace shardcheck::faults
