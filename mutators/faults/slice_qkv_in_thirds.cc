// Segment widths of a fused tensor taken as equal.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

/// Where ranks share KV heads, a third of all rows is no part of a rank's.
bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut(entry) && stacks(entry, {"q", "k", "v"}) &&
         entry.placed.shape()[0] % (3 * entry.placed.degree()) == 0 &&
         entry.placed.local_shape(0)[0] * entry.placed.degree() == entry.placed.shape()[0];
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const std::int64_t third = entry.placed.shape()[0] / 3;
  recut(entry, Segments{0, {{0, third, 1, ""}, {third, third, 1, ""}, {2 * third, third, 1, ""}}}, shards);
}

}  // namespace

const Fault& slice_qkv_in_thirds() {
  static const Fault fault{
      .name = "slice_qkv_in_thirds",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The fused q, k, v rows are cut as three segments of equal width although queries have more heads.",
      .reports = {"A14", "A16", "A96"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(
                c, argument, hits,
                "no tensor stacks q, k and v in rows that three segments over several ranks divide");
          },
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_kv_heads != c.geometry.n_heads) return std::nullopt;
        return "as many KV heads as query heads: the thirds are the segments, the index maps are equal";
      },
      .inject = with_hurt<hits, hurt>};
  return fault;
}

}  // namespace shardcheck::faults
