#include "determinism.h"

namespace shardcheck::faults {

std::optional<std::string> needs_other_leaf(const Case& c, LeafRule rule) {
  if (auto reason = needs_ranks(c)) return reason;
  const Contract contract = contract_of(c);
  const int degree = c.target.tp_degree();
  const bool other = rule(c.geometry.attention_width(), degree) != contract.leaf_attention ||
                     rule(c.geometry.ffn, degree) != contract.leaf_ffn;
  if (other) return std::nullopt;
  return "the leaf width of this degree is the contract's own";
}

}  // namespace shardcheck::faults
