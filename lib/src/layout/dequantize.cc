#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

#include "layout/packed_words.h"
#include "layout/quantized_tensors.h"
#include "shardcheck/layout/quantized.h"
#include "shardcheck/tensor/float8.h"

namespace shardcheck {
namespace {

/// One rounded product. Which NaN a product of NaNs is depends on the order of its operands.
float product(float value, float scale) {
  const float result = value * scale;
  return std::isnan(result) ? std::bit_cast<float>(0x7fc00000U) : result;
}

/// What one rank holds.
struct Local {
  const PlacedQuantized& placed;
  const TensorMap& tensors;
  std::int64_t out, in;

  const Tensor& operator[](std::string_view name) const { return tensors.find(name)->second; }
};

/// An element [row, col] of a matrix of f16 scales.
std::vector<float> widened(const Tensor& scales) {
  std::vector<float> wide(static_cast<std::size_t>(scales.elements()));
  f16_to_f32(scales.as<std::uint16_t>(), wide);
  return wide;
}

/// w[o, i] of 4-bit and GPTQ weights, whose tensors are [in, out].
void scale_integers(const Local& local, const Tensor& values, const Tensor& zeros, int zero_offset,
                    const std::vector<std::int64_t>& group_of, std::span<float> w) {
  const auto q = values.as<std::uint8_t>(), z = zeros.as<std::uint8_t>();
  const std::vector<float> scales = widened(local["scales"]);
  for (std::int64_t i = 0; i < local.in; ++i) {
    const std::int64_t first = group_of[static_cast<std::size_t>(i)] * local.out;
    for (std::int64_t o = 0; o < local.out; ++o) {
      const auto at = static_cast<std::size_t>(first + o);
      const int steps = q[static_cast<std::size_t>(i * local.out + o)] - (z[at] + zero_offset);
      w[static_cast<std::size_t>(o * local.in + i)] = product(static_cast<float>(steps), scales[at]);
    }
  }
}

[[noreturn]] void refuse_group(const Local& local, std::size_t i, std::int64_t id,
                               const std::string& allowed) {
  throw InvalidInput(
      fmt::format("{}.g_idx[{}]: {}, allowed is {}", local.placed.matrix().name, i, id, allowed));
}

/// Row of the scales that each input channel of a rank uses.
std::vector<std::int64_t> groups_of(const Local& local, const Gptq& format) {
  const auto ids = local["g_idx"].as<std::int32_t>();
  const std::int64_t groups = local["scales"].dim(0);
  const std::int64_t size = format.group == -1 ? local.in : format.group;
  std::vector<std::int64_t> rows(ids.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (format.act_order) {
      rows[i] = ids[i];
      if (rows[i] < 0 || rows[i] >= groups) refuse_group(local, i, rows[i], fmt::format("0..{}", groups - 1));
    } else {
      // Ids are those of the whole matrix, rows those of the rank.
      rows[i] = static_cast<std::int64_t>(i) / size;
      if (ids[i] != ids[0] + rows[i])
        refuse_group(local, i, ids[i], fmt::format("{} without act_order", ids[0] + rows[i]));
    }
  }
  return rows;
}

void dequantize_as(const Gptq& format, const Local& local, std::span<float> w) {
  scale_integers(local, gptq_unpack(local["qweight"], format.bits, 0),
                 gptq_unpack(local["qzeros"], format.bits, 1), 1, groups_of(local, format), w);
}

void dequantize_as(const Awq& format, const Local& local, std::span<float> w) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(local.in));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i) / format.group;
  scale_integers(local, awq_unpack(local["qweight"]), awq_unpack(local["qzeros"]), 0, rows, w);
}

/// w[o, i] = weight[o, i] * scale_at(o, i).
template <typename ScaleAt>
void scale_float8(const Local& local, ScaleAt scale_at, std::span<float> w) {
  const Tensor& weight = local["weight"];
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = f8_to_f32(weight.dtype(), static_cast<std::uint8_t>(code));
  const auto codes = weight.as<std::uint8_t>();
  std::size_t at = 0;
  for (std::int64_t o = 0; o < local.out; ++o) {
    for (std::int64_t i = 0; i < local.in; ++i, ++at) w[at] = product(values[codes[at]], scale_at(o, i));
  }
}

void dequantize_as(const Fp8PerTensor& format, const Local& local, std::span<float> w) {
  const auto scales = local["weight_scale"].f32();
  std::vector<float> of_row;
  const auto parts = local.placed.local_parts();
  for (std::size_t part = 0; part < parts.size(); ++part)
    of_row.insert(of_row.end(), static_cast<std::size_t>(parts[part]), scales[format.fused_scale ? 0 : part]);
  scale_float8(
      local, [&](std::int64_t o, std::int64_t) { return of_row[static_cast<std::size_t>(o)]; }, w);
}

void dequantize_as(const Fp8PerChannel&, const Local& local, std::span<float> w) {
  const auto scales = local["weight_scale"].f32();
  scale_float8(
      local, [&](std::int64_t o, std::int64_t) { return scales[static_cast<std::size_t>(o)]; }, w);
}

void dequantize_as(const Fp8Block& format, const Local& local, std::span<float> w) {
  const Tensor& blocks = local["weight_scale_inv"];
  const auto scales = blocks.f32();
  const std::int64_t width = blocks.dim(1);
  const auto scale_at = [&](std::int64_t o, std::int64_t i) {
    return scales[static_cast<std::size_t>(o / format.block_out * width + i / format.block_in)];
  };
  scale_float8(local, scale_at, w);
}

void dequantize_as(const Mxfp8& format, const Local& local, std::span<float> w) {
  const auto scales = local["weight_scale"].as<std::uint8_t>();
  const std::int64_t blocks = local.in / kMxBlock;
  const auto scale_at = [&](std::int64_t o, std::int64_t i) {
    const std::int64_t block = i / kMxBlock;
    const std::int64_t at = format.swizzled ? swizzled_index(o, block, blocks) : o * blocks + block;
    return e8m0_to_f32(scales[static_cast<std::size_t>(at)]);
  };
  scale_float8(local, scale_at, w);
}

}  // namespace

Tensor dequantize(const PlacedQuantized& placed, const TensorMap& shard) {
  require_stored(placed.matrix().name, placed, shard, placed.degree());
  const Local local{placed, shard, placed.local_out(), placed.local_in()};
  Tensor weight = Tensor::uninitialized(DType::f32, {local.out, local.in});
  const auto w = weight.mutable_f32();
  std::visit([&](const auto& format) { dequantize_as(format, local, w); }, placed.matrix().format);
  return weight;
}

Tensor dequantize(const QuantizedMatrix& matrix, const TensorMap& full) {
  return dequantize(PlacedQuantized(matrix, ParallelStyle::column, 1), full);
}

}  // namespace shardcheck
