// The one step here that changes values, apart from all that only move them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "layout/quantized_tensors.h"
#include "shardcheck/layout/quantized.h"
#include "shardcheck/tensor/float8.h"

namespace shardcheck {
namespace {

const Fp8PerTensor& per_part_format(const QuantizedMatrix& matrix) {
  const auto* format = std::get_if<Fp8PerTensor>(&matrix.format);
  if (format == nullptr || format->fused_scale)
    throw UnsupportedLayout(
        fmt::format("{}: {} has no scale per part; allowed is fp8_per_tensor without fused_scale",
                    matrix.name, to_string(matrix.format)));
  return *format;
}

float largest_scale(const QuantizedMatrix& matrix, std::span<const float> scales) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (!std::isfinite(scales[i]) || scales[i] <= 0)
      throw InvalidInput(fmt::format("{}.weight_scale[{}]: {}, allowed are finite positive scales",
                                     matrix.name, i, scales[i]));
  }
  return *std::ranges::max_element(scales);
}

/// In double the product is exact and neither it nor the quotient leaves the range.
float rescaled(float value, float scale, float largest) {
  return static_cast<float>(double{value} * double{scale} / double{largest});
}

}  // namespace

QuantizedWeight requantize_to_max_scale(const QuantizedWeight& weight) {
  QuantizedWeight result = weight;
  Fp8PerTensor format = per_part_format(weight.matrix);
  const DType dtype = format.dtype;
  require_stored(weight.matrix.name, PlacedQuantized(weight.matrix, ParallelStyle::column, 1), weight.tensors,
                 1);
  const auto scales = weight.tensors.find("weight_scale")->second.f32();
  const float largest = largest_scale(weight.matrix, scales);
  const auto codes = result.tensors.find("weight")->second.mutable_as<std::uint8_t>();
  std::size_t at = 0;
  const std::vector<std::int64_t> parts = weight.matrix.stacked();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::size_t end = at + static_cast<std::size_t>(parts[part] * weight.matrix.in);
    if (scales[part] == largest) at = end;
    for (; at < end; ++at)
      codes[at] = f32_to_f8(dtype, rescaled(f8_to_f32(dtype, codes[at]), scales[part], largest));
  }
  format.fused_scale = true;
  result.matrix.format = format;
  result.tensors.insert_or_assign("weight_scale", Tensor::from({1}, std::span(&largest, 1)));
  return result;
}

}  // namespace shardcheck
