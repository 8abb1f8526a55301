// KV heads cut along head_dim, so that each rank holds a part of every head.
#include "taken.h"

namespace shardcheck::faults {
namespace {

void append_parts(std::vector<Run>& runs, std::int64_t first, const Geometry& g, int degree, int rank) {
  const std::int64_t part = g.head_dim / degree;
  for (std::int64_t head = 0; head < g.n_kv_heads; ++head) {
    append_run(runs, {first + head * g.head_dim + rank * part, part});
  }
}

std::optional<Taken> taken(const Case& c, const LayoutEntry& entry, int rank, std::string_view) {
  const Geometry& g = c.geometry;
  const int degree = entry.placed.degree();
  if (!is_cut(entry) || g.n_kv_heads % degree != 0 || g.head_dim % degree != 0) return std::nullopt;
  Taken taken;
  if (stacks(entry, {"q", "k", "v"})) {
    const QkvRows rows = qkv_rows(g, entry);
    append_run(taken.runs, {rank * rows.local_q, rows.local_q});
    append_parts(taken.runs, rows.q, g, degree, rank);
    append_parts(taken.runs, rows.q + rows.kv, g, degree, rank);
  } else if (stacks(entry, {"k"}) || stacks(entry, {"v"})) {
    append_parts(taken.runs, 0, g, degree, rank);
  } else {
    return std::nullopt;
  }
  return taken;
}

}  // namespace

// Never equivalent: with two ranks or more rank 0 holds a part of the second head in place of its first.
const Fault& split_kv_along_head_dim() {
  static const Fault fault{
      .name = "split_kv_along_head_dim",
      .family = 'G',
      .level = FaultLevel::plan,
      .claim =
          "The rows of k and v are cut along the dimension of a head, so every rank holds a part of each KV "
          "head.",
      .reports = {"A26", "A89"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "one rank, or the ranks do not divide a KV head");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
