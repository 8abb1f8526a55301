// A replicated norm taken for a sharded one, its slice repeated to fit.
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const int degree = entry.placed.degree();
  const bool of_hidden =
      belongs_to(entry, "attn_norm") || belongs_to(entry, "ffn_norm") || belongs_to(entry, "final_norm");
  if (!of_hidden || degree == 1 || entry.placed.shape()[0] % degree != 0) return std::nullopt;
  const std::int64_t width = entry.placed.shape()[0] / degree;
  Taken taken;
  for (int copy = 0; copy < degree; ++copy) append_run(taken.runs, {rank * width, width});
  return taken;
}

}  // namespace

// Never equivalent: with two ranks or more the slice is not the whole, and its copies are equal.
const Fault& tile_norm_slice() {
  static const Fault fault{
      .name = "tile_norm_slice",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "A rank loads the slice of a norm weight that a shard would be and repeats it over the whole "
          "width.",
      .reports = {"A36"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "one rank, or the ranks do not divide the hidden width");
      },
      .equivalent = nullptr,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
