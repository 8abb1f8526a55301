// Attention sinks that every rank takes from the first head on.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return belongs_to(entry, "sinks") && is_cut(entry); }

void hurt(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) shard = shards.front();
}

}  // namespace

// Never equivalent: every head's sink is drawn on its own and has a share of its softmax.
const Fault& sinks_from_head_zero() {
  static const Fault fault{.name = "sinks_from_head_zero",
                           .family = 'N',
                           .level = FaultLevel::plan,
                           .claim = "Every rank holds the attention sinks of the model's first heads.",
                           .reports = {"A54", "A56", "A55"},
                           .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "one rank, or no attention sinks");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>,
                           .steer =
                               [](Case& c, Stream&) {
                                 use_seed_tables(c);
                                 c.geometry.sinks = true;
                               }};
  return fault;
}

}  // namespace shardcheck::faults
