#include "determinism.h"

#include <algorithm>

namespace shardcheck::faults {

std::optional<std::string> needs_other_leaf(const Case& c, LeafRule rule) {
  // Rounded to 16 bits, another order shows in few outputs or none.
  if (c.dtype != DType::f32) return "16-bit activations may round both orders alike";
  const Contract contract = contract_of(c);
  const auto differs = [&](int degree) {
    return degree > 1 && (rule(c.geometry.attention_width(), degree) != contract.leaf_attention ||
                          rule(c.geometry.ffn, degree) != contract.leaf_ffn);
  };
  // This law runs every degree of the contract, whatever the target.
  if (c.law == "tp_degree_is_invisible") {
    if (std::ranges::any_of(contract.degrees, differs)) return std::nullopt;
    return "the leaf width of every degree is the contract's own";
  }
  if (auto reason = needs_ranks(c)) return reason;
  if (differs(c.target.tp_degree())) return std::nullopt;
  return "the leaf width of this degree is the contract's own";
}

}  // namespace shardcheck::faults
