// The KV offset of a rank in place of that of its replication group.
#include <algorithm>

#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!shares_kv_heads(c.geometry, entry)) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t k = rows.q + rank * rows.local_kv;
  const std::int64_t last = rows.all() - rows.local_kv;
  return with_kv_from(c.geometry, entry, rank, std::min(k, last), std::min(k + rows.kv, last));
}

}  // namespace

// Never equivalent: rank 1 shares the first KV head and takes the rows after it for k.
const Fault& offset_kv_by_tp_rank() {
  static const Fault fault{
      .name = "offset_kv_by_tp_rank",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "With more ranks than KV heads, the offset of k and v grows with the rank, past their end, and not "
          "with the replication group.",
      .reports = {"A24"},
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
