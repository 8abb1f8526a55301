// The rotary order of k, written for as many heads as q has.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  const std::int64_t head_dim = g.head_dim * g.n_kv_heads / g.n_heads;
  if (!rearranges(entry, {"k"}) || head_dim < 2 || g.kv_width() % (2 * g.n_heads) != 0) return std::nullopt;
  const std::vector<Run> right = inverse_runs(entry.arrangement().order);
  return cut_in_order(entry, rank, compose_runs(right, interleaved_rotary(g.n_heads, head_dim, head_dim)));
}

}  // namespace

const Fault& permute_k_with_query_heads() {
  static const Fault fault{
      .name = "permute_k_with_query_heads",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim = "The rows of k are brought into the order of rotary pairs as if k had as many heads as q.",
      .reports = {"A21", "A22"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (auto reason = needs_two_positions(c)) return reason;
        return unless_taken(
            c, argument, Side::target, taken,
            "no tensor holds k in the order of rotary pairs that the query heads would divide");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 3));
            c.geometry.n_heads = c.geometry.n_kv_heads * stream.pick<std::int64_t>({1, 2, 2, 3});
            fit_ranks(c.geometry, ranks);
            c.geometry.head_dim = 2 * c.geometry.n_heads / c.geometry.n_kv_heads * stream.integer(1, 2);
            c.target = over_ranks("torchtitan-llama", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
