// The router's bias through bf16 and back.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) { return belongs_to(entry, "router_bias"); }

void hurt(const LayoutEntry&, std::string_view, std::vector<Tensor>& shards) {
  for (Tensor& shard : shards) shard = shard.to(DType::bf16).to(shard.dtype());
}

}  // namespace

// Never equivalent: random f32 values are no bf16 numbers.
const Fault& router_bias_narrowed_to_bf16() {
  static const Fault fault{
      .name = "router_bias_narrowed_to_bf16",
      .family = 'E',
      .level = FaultLevel::value,
      .claim = "The bias that chooses a token's experts went through bf16 and back.",
      .reports = {"A105", "A106"},
      .oracles = {Oracle::layout},  // the bias only chooses, and every choice may stay as it is
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        if (c.dtype != DType::f32) return "weights of 16 bits have nothing to lose";
        if (c.geometry.n_experts == 1) return "one expert: its bias may be a bf16 number";
        return unless_hit(c, argument, hits, "the router has no bias");
      },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_experts(c, stream);
            c.geometry.router_bias = true;
          }};
  return fault;
}

}  // namespace shardcheck::faults
