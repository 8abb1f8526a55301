// Segment arithmetic of a model whose heads together are as wide as its hidden state.
#include <algorithm>

#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const std::int64_t hidden = c.geometry.d_model;
  if (!stacks_qkv(entry) || hidden == c.geometry.attention_width()) return std::nullopt;
  const QkvRows rows = qkv_rows(c.geometry, entry);
  const std::int64_t own = rank / kv_replicas(c.geometry, entry) * rows.local_kv;
  const std::int64_t last = rows.all() - rows.local_kv;
  return with_kv_from(c.geometry, entry, rank, std::min(hidden + own, last),
                      std::min(hidden + rows.kv + own, last));
}

}  // namespace

// Never equivalent: rank 0 takes k from row `hidden` or from the last rows, and k begins at neither.
const Fault& use_hidden_for_heads_width() {
  static const Fault fault{
      .name = "use_hidden_for_heads_width",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The offsets of k and v in the fused rows are computed with the hidden width where heads times "
          "head_dim is another number.",
      .reports = {"A16"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (auto reason = needs_two_positions(c)) return reason;
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor stacks q, k and v, or the hidden state is as wide as the heads");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream&) {
            if (c.geometry.d_model == c.geometry.attention_width()) ++c.geometry.d_model;
          }};
  return fault;
}

}  // namespace shardcheck::faults
