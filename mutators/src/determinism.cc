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

void sum_in_parts(const float* x, std::int64_t rows, std::int64_t width, std::int64_t parts, float* sums) {
  parts = std::min(parts, width);
  for (std::int64_t i = 0; i < rows; ++i) {
    sums[i] = 0.0F;
    for (std::int64_t p = 0; p < parts; ++p) {
      float part = 0.0F;
      for (std::int64_t j = width * p / parts; j < width * (p + 1) / parts; ++j)
        part += x[i * width + j] * x[i * width + j];
      sums[i] += part;
    }
  }
}

}  // namespace shardcheck::faults
