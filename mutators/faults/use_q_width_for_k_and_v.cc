// Segment arithmetic of a model with as many KV heads as query heads.
#include <algorithm>

#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  if (!is_cut(entry) || !stacks_qkv(entry)) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const auto offset = [&](std::int64_t segment) {
    return std::min(segment * rows.q + rank * rows.local_q, rows.all() - rows.local_kv);
  };
  return with_kv_from(c.geometry, entry, rank, offset(1), offset(2));
}

}  // namespace

const Fault& use_q_width_for_k_and_v() {
  static const Fault fault{
      .name = "use_q_width_for_k_and_v",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The offsets of k and v in the fused rows are computed with the width of q and end at the last "
          "rows.",
      .reports = {"A16"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor stacks q, k and v over several ranks");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
