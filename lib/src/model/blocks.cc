#include "model/blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/arithmetic/exact_attention.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {

std::vector<float> widened(const Tensor& tensor) {
  const Tensor f32 = tensor.to(DType::f32);
  return {f32.f32().begin(), f32.f32().end()};
}

void normalize_heads(const Numerics& numerics, Matrix& x, std::int64_t head_dim, float eps,
                     std::span<const float> weight) {
  const std::int64_t heads = x.rows * (x.width / head_dim);
  std::vector<float> sums(static_cast<std::size_t>(heads));
  // A head is never cut: one chain is a leaf under every contract.
  sums_of_squares(numerics.arithmetic, TreeShape::halving, 0, x.values.data(), heads, head_dim, sums.data());
  rms_scale(x.values.data(), heads, head_dim, sums.data(), static_cast<float>(head_dim), eps, weight.data(),
            x.values.data());
  numerics.store(x);
}

void finish_norm(const Numerics& numerics, Matrix& x, std::span<const float> sums, float divisor, float eps,
                 std::span<const float> gain, std::span<const float> bias) {
  rms_scale(x.values.data(), x.rows, x.width, sums.data(), divisor, eps, gain.data(), x.values.data());
  if (!bias.empty()) add_bias(x.values.data(), x.rows, x.width, x.width, bias.data());
  numerics.store(x);
}

void add_residual(const Numerics& numerics, Matrix& x, const Matrix& y) {
  add_in_place(x.values, y.values);
  numerics.store(x);
}

std::vector<std::int32_t> positions_of(const Tokens& tokens) {
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < tokens.count(); ++i)
    positions.push_back(static_cast<std::int32_t>(i % tokens.length));
  return positions;
}

RotaryTables::RotaryTables(const Geometry& geometry, std::vector<std::int32_t> positions)
    : rotary_width_(geometry.rotary_width()), table_rows_(std::move(positions)) {
  if (geometry.rope == Rope::none) table_rows_.clear();
  if (table_rows_.empty()) return;
  const auto [low, high] = std::ranges::minmax(table_rows_);
  const std::int64_t count = high - low + 1;
  const auto entries = static_cast<std::size_t>(count * (geometry.rotary_width() / 2));
  cos_.resize(entries);
  sin_.resize(entries);
  rope_tables(low, count, rotary_width_, geometry.rope_theta, cos_.data(), sin_.data());
  for (std::int32_t& row : table_rows_) row -= low;
}

void RotaryTables::apply(const Numerics& numerics, Matrix& x, std::int64_t head_dim, bool half_split) const {
  if (table_rows_.empty()) return;
  const auto rotate = [&](std::int64_t first, std::int64_t heads) {
    apply_rope(x.values.data() + first, x.rows, x.width, heads, rotary_width_, table_rows_.data(),
               cos_.data(), sin_.data(), half_split);
  };
  if (rotary_width_ == head_dim) {
    rotate(0, x.width / head_dim);
  } else {
    for (std::int64_t first = 0; first < x.width; first += head_dim) rotate(first, 1);
  }
  numerics.store(x);
}

Matrix attend(const Geometry& geometry, const Numerics& numerics, const Tokens& tokens, const Matrix& q,
              const Matrix& k, const Matrix& v, std::span<const std::int64_t> kv_of_head, bool causal,
              std::span<const float> slopes, std::span<const float> sinks) {
  Matrix out(q.rows, q.width);
  AttentionShape shape;
  shape.rows = shape.keys = tokens.length;
  shape.heads = q.width / geometry.head_dim;
  shape.kv_heads = k.width / geometry.head_dim;
  shape.head_dim = geometry.head_dim;
  shape.q_stride = q.width;
  shape.k_stride = k.width;
  shape.v_stride = v.width;
  shape.out_stride = out.width;
  shape.key_block = numerics.arithmetic == Arithmetic::tree ? numerics.contract.key_block : 0;
  shape.shape = numerics.contract.shape;
  shape.causal = causal;
  shape.slopes = slopes.empty() ? nullptr : slopes.data();
  shape.sinks = sinks.empty() ? nullptr : sinks.data();
  for (std::int64_t sequence = 0; sequence < tokens.batch; ++sequence) {
    const std::int64_t first = sequence * tokens.length;
    const auto attend_one = numerics.arithmetic == Arithmetic::exact ? exact_attention : attention;
    attend_one(shape, q.row(first), k.row(first), v.row(first), kv_of_head, out.row(first));
  }
  numerics.store(out);
  return out;
}

Matrix gated(const Numerics& numerics, Activation activation, const Matrix& gate, const Matrix& up) {
  Matrix out(gate.rows, gate.width);
  activate_multiply(activation, gate.values, up.values, out.values);
  numerics.store(out);
  return out;
}

Matrix activated(const Numerics& numerics, Activation activation, const Matrix& up) {
  Matrix out(up.rows, up.width);
  activate(activation, up.values, out.values);
  numerics.store(out);
  return out;
}

void require_tokens_of(const Geometry& geometry, const Tokens& tokens) {
  if (tokens.batch < 1 || tokens.length < 1 || std::ssize(tokens.ids) != tokens.count()) {
    throw InvalidInput(
        fmt::format("tokens: batch={} length={} with {} ids: expected batch*length ids, at least one",
                    tokens.batch, tokens.length, tokens.ids.size()));
  }
  if (geometry.positions > 0 && tokens.length > geometry.positions) {
    throw InvalidInput(
        fmt::format("tokens: length={} goes beyond the model's learned positions: allowed 1..{}",
                    tokens.length, geometry.positions));
  }
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] < 0 || tokens.ids[i] >= geometry.vocab) {
      throw InvalidInput(fmt::format("tokens: id {} at position {} is outside the vocabulary: allowed 0..{}",
                                     tokens.ids[i], i, geometry.vocab - 1));
    }
  }
}

}  // namespace shardcheck
