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

std::optional<std::string> needs(bool something_to_act_on, const Case& c, std::string_view otherwise) {
  if (auto reason = needs_layout(c)) return reason;
  if (something_to_act_on) return std::nullopt;
  return std::string(otherwise);
}

std::optional<std::string> one_logit_outweighs(const Case& c) {
  if (!c.geometry.tied || c.weights != WeightStyle::powered) return std::nullopt;
  return "powered weights give a tied head logits beside which the others round away";
}

bool decodes(const Case& c) {
  return c.law == "decoding_equals_prefill" || c.law == "axis_compositions_are_invisible";
}

bool begins_inside_a_block(const Case& c) {
  return std::ranges::any_of(c.chunks, [&](std::int64_t start) { return start % c.key_block != 0; });
}

bool shares_vocabulary_by_chunk(const Case& c) {
  const std::shared_ptr<const Layout> layout = target_layout(c);
  const int degree = c.target.tp_degree();
  if (layout == nullptr || layout->consumer == "none" || degree == 1) return false;
  const LocalExtent first = consumer_named(layout->consumer).extent(c.geometry, degree, 0);
  return first.head_begin == 0 && first.head_end == (c.geometry.vocab + degree - 1) / degree;
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
