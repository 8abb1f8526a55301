// Stripes of KV heads cut into more blocks than there are stripes.
#include <algorithm>

#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

/// Rows of a file that has the queries of each KV head, its keys and its values one after the other.
std::vector<Run> striped(const Geometry& g) {
  const std::int64_t q = g.attention_width() / g.n_kv_heads, end = g.attention_width();
  std::vector<Run> order;
  for (std::int64_t head = 0; head < g.n_kv_heads; ++head) {
    append_run(order, {head * q, q});
    append_run(order, {end + head * g.head_dim, g.head_dim});
    append_run(order, {end + g.kv_width() + head * g.head_dim, g.head_dim});
  }
  return order;
}

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!shares_kv_heads(c.geometry, entry)) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t own = rows.local_q + 2 * rows.local_kv;
  const std::int64_t begin = std::min(rank * rows.all() / entry.placed.degree(), rows.all() - own);
  return Taken{0, compose_runs(striped(c.geometry), {{begin, own}})};
}

}  // namespace

// Never equivalent: rank 0 holds queries where its keys should be.
const Fault& cut_stripes_inside_queries() {
  static const Fault fault{
      .name = "cut_stripes_inside_queries",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "With more ranks than KV heads, a file of one q, k, v stripe per head is cut into equal blocks, so "
          "that a rank begins among the queries of a stripe.",
      .reports = {"A8"},
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
