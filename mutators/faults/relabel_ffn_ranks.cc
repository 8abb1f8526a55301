// Control: the shards of the whole FFN handed to the ranks in reverse. reverse_rank_order does the same to
// one of these tensors alone, and is a fault.
#include <algorithm>
#include <array>

#include "rank_order.h"

namespace shardcheck::faults {
namespace {

constexpr std::array<std::string_view, 5> kFfn = {"gate", "gate_bias", "up", "up_bias", "down"};

int mirrored(int rank, int degree) { return degree - 1 - rank; }

bool is_in_ffn(const LayoutEntry& entry, std::string_view) {
  return std::ranges::all_of(entry.parts, [](const LogicalTensor& part) {
    return std::ranges::find(kFfn, part.role) != kFfn.end();
  });
}

void reverse(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  reassign(shards, mirrored);
}

std::optional<Relabelling> relabelling(const Case& c, std::string_view) {
  const int degree = c.target.tp_degree();
  const std::int64_t share = c.geometry.ffn / degree;
  LayerRelabelling layer;
  for (int rank = 0; rank < degree; ++rank) {
    for (std::int64_t i = 0; i < share; ++i) layer.ffn.push_back(mirrored(rank, degree) * share + i);
  }
  return in_every_layer(c.geometry, layer);
}

}  // namespace

const Fault& relabel_ffn_ranks() {
  static const Fault fault{
      .name = "relabel_ffn_ranks",
      .family = 'Z',
      .level = FaultLevel::plan,
      .claim = "Right: the shards of gate, up and down together go to the ranks in reverse order.",
      .reports = {"faults.md"},
      .oracles = {},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (auto reason = needs_ranks(c)) return reason;
        if (c.geometry.ffn % c.target.tp_degree() != 0) return "the shares of the ranks are unequal";
        return unless_hit(c, argument, is_in_ffn, "no layer has an FFN of its own");
      },
      .inject = with_hurt<is_in_ffn, reverse>,
      .relabels = relabelling};
  return fault;
}

}  // namespace shardcheck::faults
