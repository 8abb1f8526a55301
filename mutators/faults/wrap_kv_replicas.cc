// Replicas dealt out round robin where neighbours share.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!shares_kv_heads(c.geometry, entry)) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t k = rows.q + rank % c.geometry.n_kv_heads * rows.local_kv;
  return with_kv_from(c.geometry, entry, rank, k, k + rows.kv);
}

}  // namespace

const Fault& wrap_kv_replicas() {
  static const Fault fault{
      .name = "wrap_kv_replicas",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim = "With more ranks than KV heads, rank r holds KV head r mod n_kv in place of r / replicas.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no rank shares a KV head with another");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>,
      .steer = [](Case& c, Stream& stream) { steer_to_kv_replicas(c, stream, &Case::target); }};
  return fault;
}

}  // namespace shardcheck::faults
