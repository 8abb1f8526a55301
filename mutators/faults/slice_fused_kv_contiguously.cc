// Fused k and v cut as one matrix.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!is_cut(entry) || !stacks_qkv(entry) || c.geometry.n_kv_heads % entry.placed.degree() != 0)
    return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t first = rows.q + 2 * rank * rows.local_kv;
  return with_kv_from(c.geometry, entry, rank, first, first + rows.local_kv);
}

}  // namespace

// Never equivalent: the first rank holds keys where its values should be.
const Fault& slice_fused_kv_contiguously() {
  static const Fault fault{
      .name = "slice_fused_kv_contiguously",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The keys and values below them are cut as one matrix, so that the first ranks hold keys alone and "
          "the last ones values.",
      .reports = {"A9"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no q, k and v are cut over several ranks");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
