// A square expert matrix transposed: shapes cannot tell.
#include "mesh_fault.h"

namespace shardcheck::faults {
namespace {

bool is_transposed(const LogicalTensor& part) {
  const bool is_chosen = part.role == "expert_gate" || part.role == "expert_up";
  return is_chosen && part.shape[0] == part.shape[1] && part.shape[0] > 1;
}

bool hits(const LayoutEntry& entry, std::string_view) { return is_transposed(entry.parts.front()); }

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  rewrite(
      target,
      [](const LogicalTensor& part, const TensorMap& right) -> std::optional<Tensor> {
        if (!is_transposed(part)) return std::nullopt;
        return transposed(right.find(part.name)->second);
      },
      shards);
}

}  // namespace

// Never equivalent: a random matrix of two rows or more is not symmetric, and every token has an expert.
const Fault& swap_expert_dims() {
  static const Fault fault{
      .name = "swap_expert_dims",
      .family = 'E',
      .level = FaultLevel::plan,
      .claim = "The two dimensions of the square gate and up matrices of every expert are exchanged.",
      .reports = {"A18", "A37", "A38"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_hit(c, argument, hits, "the experts' matrices are not square");
      },
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            steer_to_experts(c, stream);
            c.geometry.expert_ffn += c.geometry.expert_ffn % 2;
            c.geometry.d_model = c.geometry.expert_ffn;
          }};
  return fault;
}

}  // namespace shardcheck::faults
