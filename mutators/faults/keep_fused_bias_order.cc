// The weight is dealt out in stripes, its bias is not.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (!rearranges(entry, {"q_bias", "k_bias", "v_bias"})) return std::nullopt;
  return cut_in_order(entry, rank, inverse_runs(entry.arrangement().order));
}

}  // namespace

// Never equivalent: an order that is none has nothing to act on, and any other moves a row.
const Fault& keep_fused_bias_order() {
  static const Fault fault{
      .name = "keep_fused_bias_order",
      .family = 'F',
      .level = FaultLevel::plan,
      .claim =
          "The fused q, k, v weight is reordered into one stripe per KV head and its bias keeps all q, all "
          "k, all v.",
      .reports = {"A81"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "no tensor deals the biases of q, k and v out in stripes");
      },
      .equivalent = nullptr,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(1, 4));
            fit_ranks(c.geometry, ranks);
            c.geometry.qkv_bias = true;
            c.target = over_ranks("megatron-llama", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
