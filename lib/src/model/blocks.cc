#include "model/blocks.h"

#include <fmt/format.h>

#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {

Reduction whole_reduction(Arithmetic arithmetic, const Contract& contract, std::int64_t k,
                          std::int64_t leaf) {
  return arithmetic == Arithmetic::native ? Reduction::chain() : Reduction::whole(contract.shape, k, leaf);
}

std::vector<float> widened(const Tensor& tensor) {
  const Tensor f32 = tensor.to(DType::f32);
  return {f32.f32().begin(), f32.f32().end()};
}

Matrix linear(const Matrix& x, const PackedWeights& weights, const Reduction& reduction,
              std::span<const float> bias) {
  Matrix y(x.rows, weights.n());
  gemm(x.values.data(), x.width, x.rows, weights, reduction, y.values.data(), y.width);
  if (!bias.empty()) add_bias(y.values.data(), y.rows, y.width, y.width, bias.data());
  return y;
}

void normalize_heads(Matrix& x, std::int64_t head_dim, float eps, std::span<const float> weight) {
  const std::int64_t heads = x.rows * (x.width / head_dim);
  std::vector<float> sums(static_cast<std::size_t>(heads));
  sum_of_squares(x.values.data(), heads, head_dim, TreeShape::halving, 0, sums.data());
  rms_scale(x.values.data(), heads, head_dim, sums.data(), static_cast<float>(head_dim), eps, weight.data(),
            x.values.data());
}

RotaryTables::RotaryTables(const Geometry& geometry, const Tokens& tokens) {
  if (geometry.rope == Rope::none) return;
  const auto entries = static_cast<std::size_t>(tokens.length * (geometry.head_dim / 2));
  cos_.resize(entries);
  sin_.resize(entries);
  rope_tables(0, tokens.length, geometry.head_dim, geometry.rope_theta, cos_.data(), sin_.data());
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    positions_.push_back(static_cast<std::int32_t>(i % tokens.length));
  }
}

void RotaryTables::apply(Matrix& x, std::int64_t head_dim, bool half_split) const {
  if (positions_.empty()) return;
  apply_rope(x.values.data(), x.rows, x.width, x.width / head_dim, head_dim, positions_.data(), cos_.data(),
             sin_.data(), half_split);
}

Matrix attend(const Geometry& geometry, Arithmetic arithmetic, const Contract& contract, const Tokens& tokens,
              const Matrix& q, const Matrix& k, const Matrix& v, std::span<const std::int64_t> kv_of_head,
              bool causal) {
  Matrix out(q.rows, q.width);
  AttentionShape shape;
  shape.rows = tokens.length;
  shape.heads = q.width / geometry.head_dim;
  shape.kv_heads = k.width / geometry.head_dim;
  shape.head_dim = geometry.head_dim;
  shape.q_stride = q.width;
  shape.k_stride = k.width;
  shape.v_stride = v.width;
  shape.out_stride = out.width;
  shape.key_block = arithmetic == Arithmetic::native ? 0 : contract.key_block;
  shape.shape = contract.shape;
  shape.causal = causal;
  for (std::int64_t sequence = 0; sequence < tokens.batch; ++sequence) {
    const std::int64_t first = sequence * tokens.length;
    attention(shape, q.row(first), k.row(first), v.row(first), kv_of_head, out.row(first));
  }
  return out;
}

Matrix gated(const Matrix& gate, const Matrix& up) {
  Matrix out(gate.rows, gate.width);
  silu_multiply(gate.values, up.values, out.values);
  return out;
}

void require_arithmetic(Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::exact) {
    throw InvalidInput("arithmetic=exact is not available for a forward pass: allowed native, tree");
  }
}

void require_tokens_of(const Geometry& geometry, const Tokens& tokens) {
  if (tokens.batch < 1 || tokens.length < 1 || std::ssize(tokens.ids) != tokens.count()) {
    throw InvalidInput(
        fmt::format("tokens: batch={} length={} with {} ids: expected batch*length ids, at least one",
                    tokens.batch, tokens.length, tokens.ids.size()));
  }
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] < 0 || tokens.ids[i] >= geometry.vocab) {
      throw InvalidInput(fmt::format("tokens: id {} at position {} is outside the vocabulary: allowed 0..{}",
                                     tokens.ids[i], i, geometry.vocab - 1));
    }
  }
}

}  // namespace shardcheck
