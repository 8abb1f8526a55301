// A file of one q, k, v stripe per KV head, read as all q, all k, all v.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!stacks_qkv(entry)) return std::nullopt;
  const Geometry& g = c.geometry;
  const std::int64_t heads = g.n_heads / g.n_kv_heads;
  return cut_in_order(entry, rank, runs_of({g.n_kv_heads, {heads * g.head_dim, g.head_dim, g.head_dim}}));
}

}  // namespace

const Fault& read_stripes_as_sections() {
  static const Fault fault{
      .name = "read_stripes_as_sections",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The file's fused rows lie in one q, k, v stripe per KV head and are cut as if all q came first, "
          "then all k, all v.",
      .reports = {"A7", "A12", "A13", "A14"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no tensor stacks q, k and v");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
