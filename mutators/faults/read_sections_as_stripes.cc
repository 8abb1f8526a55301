// A file of all q, all k, all v, read as one stripe per KV head or head.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (!rearranges(entry, {"q", "k", "v"})) return std::nullopt;
  return cut_in_order(entry, rank, inverse_runs(entry.arrangement().order));
}

}  // namespace

// Never equivalent: an order that is none has nothing to act on, and any other moves a row.
const Fault& read_sections_as_stripes() {
  static const Fault fault{
      .name = "read_sections_as_stripes",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The fused rows arrive as all q, all k, all v where the layout deals them out in one stripe per KV "
          "head.",
      .reports = {"A13", "A15", "A17"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken, "no tensor deals q, k and v out in stripes");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 4));
            fit_ranks(c.geometry, ranks);
            c.target = over_ranks("megatron-llama", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
