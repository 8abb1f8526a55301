// The weights are brought into the order of the pairs, their biases are not.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (!rearranges(entry, {"q_bias"}) && !rearranges(entry, {"k_bias"})) return std::nullopt;
  return cut_in_order(entry, rank, inverse_runs(entry.arrangement().order));
}

}  // namespace

// Never equivalent: an order that is none has nothing to act on, and any other moves a row.
const Fault& leave_rotary_bias_in_halves() {
  static const Fault fault{
      .name = "leave_rotary_bias_in_halves",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The rows of q and k are brought into the order of rotary pairs and the entries of their biases "
          "are not.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (auto reason = needs_two_positions(c)) return reason;
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor holds a bias in the order of rotary pairs");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 4));
            fit_ranks(c.geometry, ranks);
            c.geometry.qkv_bias = true;
            c.geometry.head_dim = 2 * stream.integer(1, 4);
            c.target = over_ranks("torchtitan-llama", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
