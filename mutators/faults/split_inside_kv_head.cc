// KV rows cut over all ranks, through the heads.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  if (!shares_kv_heads(g, entry) || g.head_dim % kv_replicas(g, entry) != 0) return std::nullopt;
  const QkvRows rows = qkv_rows(g, entry);
  const std::int64_t replicas = kv_replicas(g, entry), part = rows.local_kv / replicas;
  Taken taken{0, {{rank * rows.local_q, rows.local_q}}};
  for (const std::int64_t first : {rows.q, rows.q + rows.kv}) {
    for (std::int64_t copy = 0; copy < replicas; ++copy) append_run(taken.runs, {first + rank * part, part});
  }
  return taken;
}

}  // namespace

// Never equivalent: the parts of a head are copies of each other.
const Fault& split_inside_kv_head() {
  static const Fault fault{
      .name = "split_inside_kv_head",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "With more ranks than KV heads, a rank takes its share of the rows of k and v, a part of a head, "
          "and repeats it.",
      .reports = {"A8", "A25", "A26", "A28"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no rank shares a KV head with another");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer = [](Case& c, Stream& stream) { steer_to_kv_replicas(c, stream, &Case::target); }};
  return fault;
}

}  // namespace shardcheck::faults
