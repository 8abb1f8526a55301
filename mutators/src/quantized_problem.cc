#include "shardcheck/mutators/quantized_problem.h"

#include <algorithm>
#include <numeric>

namespace shardcheck {
namespace {

QuantUnits units_of(const Gptq& format) {
  const std::int64_t values = format.bits == 3 ? 32 : 32 / format.bits;
  const bool whole_scales = format.act_order || format.group == -1;
  return {values, values, values, whole_scales ? values : std::lcm(values, format.group)};
}
QuantUnits units_of(const Awq& format) { return {8, format.group, 8, format.group}; }
QuantUnits units_of(const Fp8PerTensor&) { return {}; }
QuantUnits units_of(const Fp8PerChannel&) { return {}; }
QuantUnits units_of(const Fp8Block& format) { return {1, 1, format.block_out, format.block_in}; }
QuantUnits units_of(const Mxfp8&) { return {1, 32, 1, 32}; }

/// Any bits, except that scales of 16 and 32 bits are finite and positive.
Tensor draw_tensor(Stream& stream, DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::uninitialized(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    std::uint64_t bits = stream.next_u32();
    if (dtype == DType::f16) bits = 0x2000U + bits % 0x2000U;
    if (dtype == DType::f32) bits = 0x3c000000U + bits % 0x04000000U;
    tensor.set_bits(i, bits);
  }
  return tensor;
}

std::int64_t blocks_of(std::int64_t length, std::int64_t block) { return (length + block - 1) / block; }

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Gptq& format) {
  const std::int64_t group = format.group == -1 ? m.in : format.group;
  const std::int64_t groups = blocks_of(m.in, group);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < m.in; ++i) ids.push_back(static_cast<std::int32_t>(i / group));
  if (format.act_order) stream.shuffle(std::span(ids));
  Tensor g_idx = Tensor::uninitialized(DType::i32, {m.in});
  std::ranges::copy(ids, g_idx.mutable_as<std::int32_t>().begin());
  return {{"qweight", draw_tensor(stream, DType::i32, {m.in * format.bits / 32, m.out})},
          {"qzeros", draw_tensor(stream, DType::i32, {groups, m.out * format.bits / 32})},
          {"scales", draw_tensor(stream, DType::f16, {groups, m.out})},
          {"g_idx", g_idx}};
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Awq& format) {
  const std::int64_t groups = m.in / format.group;
  return {{"qweight", draw_tensor(stream, DType::i32, {m.in, m.out / 8})},
          {"qzeros", draw_tensor(stream, DType::i32, {groups, m.out / 8})},
          {"scales", draw_tensor(stream, DType::f16, {groups, m.out})}};
}

TensorMap draw_float8(Stream& stream, const QuantizedMatrix& m, DType dtype, const std::string& scale,
                      DType scale_dtype, const Shape& scale_shape) {
  return {{"weight", draw_tensor(stream, dtype, {m.out, m.in})},
          {scale, draw_tensor(stream, scale_dtype, scale_shape)}};
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8PerTensor& format) {
  const std::int64_t scales = format.fused_scale ? 1 : std::ssize(m.stacked());
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f32, {scales});
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8PerChannel& format) {
  const Shape shape = format.keep_dim ? Shape{m.out, 1} : Shape{m.out};
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f32, shape);
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8Block& format) {
  return draw_float8(stream, m, format.dtype, "weight_scale_inv", DType::f32,
                     {blocks_of(m.out, format.block_out), blocks_of(m.in, format.block_in)});
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Mxfp8& format) {
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f8_e8m0, {m.out, m.in / 32});
}

}  // namespace

QuantUnits units_of(const QuantFormat& format) {
  return std::visit([](const auto& f) { return units_of(f); }, format);
}

TensorMap random_tensors(Stream& stream, const QuantizedMatrix& matrix) {
  return std::visit([&](const auto& format) { return draw_tensors(stream, matrix, format); }, matrix.format);
}

std::vector<std::int64_t> QuantizedProblem::cut_lengths() const {
  return style == ParallelStyle::column ? matrix.stacked() : std::vector<std::int64_t>{matrix.in};
}

Tensor QuantizedProblem::share_of(const Tensor& weight, int rank) const {
  std::vector<std::int64_t> held;
  std::int64_t offset = 0;
  for (const std::int64_t length : cut_lengths()) {
    const std::int64_t share = length / degree;
    for (std::int64_t i = 0; i < share; ++i) held.push_back(offset + rank * share + i);
    offset += length;
  }
  const bool rows = style == ParallelStyle::column;
  const std::int64_t count = std::ssize(held);
  const Shape shape{rows ? count : weight.dim(0), rows ? weight.dim(1) : count};
  Tensor share = Tensor::uninitialized(DType::f32, shape);
  auto out = share.mutable_f32().begin();
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      const std::int64_t row = rows ? held[static_cast<std::size_t>(o)] : o;
      const std::int64_t column = rows ? i : held[static_cast<std::size_t>(i)];
      *out++ = weight.f32()[static_cast<std::size_t>(row * weight.dim(1) + column)];
    }
  }
  return share;
}

}  // namespace shardcheck
