// Copies of KV heads gathered as if each were another one.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!shares_kv_heads(c.geometry, entry)) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t replicas = kv_replicas(c.geometry, entry);
  // Head r / replicas is what the rank of that number holds.
  const std::int64_t k = rows.q + rank / replicas / replicas * rows.local_kv;
  return with_kv_from(c.geometry, entry, rank, k, k + rows.kv);
}

}  // namespace

const Fault& concatenate_kv_replicas() {
  static const Fault fault{
      .name = "concatenate_kv_replicas",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "With more source ranks than KV heads, the copies of the first heads are taken for all of them.",
      .reports = {"A27"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::source, taken, "no rank shares a KV head with another");
      },
      .equivalent = equal_index_maps<taken, Side::source>,
      .inject = takes<taken, Side::source>,
      .steer = [](Case& c, Stream& stream) { steer_to_kv_replicas(c, stream, &Case::source); }};
  return fault;
}

}  // namespace shardcheck::faults
