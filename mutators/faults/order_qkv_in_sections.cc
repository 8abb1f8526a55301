// Each rank's stripes put together as sections: the reverse of order_qkv_per_kv_group.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  const int degree = entry.placed.degree();
  if (!rearranges(entry, {"q", "k", "v"}) || g.n_kv_heads % degree != 0) return std::nullopt;
  const std::int64_t heads = g.n_heads / g.n_kv_heads;
  const Interleave stripes{g.n_kv_heads / degree, {heads * g.head_dim, g.head_dim, g.head_dim}};
  return Taken{0, compose_runs(owned(entry, rank, 0), inverse_runs(runs_of(stripes)))};
}

}  // namespace

const Fault& order_qkv_in_sections() {
  static const Fault fault{
      .name = "order_qkv_in_sections",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The local rows arrive as all q, all k, all v where the consumer reads one stripe per KV head.",
      .reports = {"A7", "A13", "A17"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor deals q, k and v out in whole stripes to each rank");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 4));
            fit_ranks(c.geometry, ranks);
            c.target = over_ranks("megatron-llama", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
