#include <fmt/format.h>

#include "layout/quantized_tensors.h"
#include "shardcheck/layout/quantized.h"

namespace shardcheck {
namespace {

[[noreturn]] void refuse(const QuantizedMatrix& stack, const QuantizedMatrix& part, std::string_view why) {
  throw UnsupportedLayout(fmt::format("{}: part {}: {}", stack.name, part.name, why));
}

/// Refuses what has no stack, whatever its bytes.
void check_part(const QuantizedMatrix& stack, const QuantizedMatrix& part) {
  if (part.format != stack.format)
    refuse(stack, part,
           fmt::format("format {}, allowed is {}", to_string(part.format), to_string(stack.format)));
  if (part.in != stack.in) refuse(stack, part, fmt::format("in={}, allowed is {}", part.in, stack.in));
  const auto* per_tensor = std::get_if<Fp8PerTensor>(&part.format);
  if (per_tensor != nullptr && per_tensor->fused_scale)
    refuse(stack, part, "weight_scale is fused, allowed is one scale per part");
  const auto* mx = std::get_if<Mxfp8>(&part.format);
  if (mx != nullptr && mx->swizzled)
    refuse(stack, part, "weight_scale is swizzled, allowed is weight_scale [out, in/32]");
}

/// The dimension along which a companion of a stack grows, -1 when the parts must share one tensor: g_idx.
int stacked_dim(const PlacedCompanion& companion) {
  if (companion.shard) return companion.shard->dim;
  return companion.name == "g_idx" ? -1 : 0;
}

Tensor stacked(const QuantizedMatrix& stack, const PlacedCompanion& companion,
               const std::vector<QuantizedWeight>& parts) {
  const int dim = stacked_dim(companion);
  const Tensor& first = parts.front().tensors.find(companion.name)->second;
  Tensor whole = dim < 0 ? first : Tensor::uninitialized(companion.dtype, companion.shape);
  std::int64_t begin = 0;
  for (const QuantizedWeight& part : parts) {
    const Tensor& tensor = part.tensors.find(companion.name)->second;
    if (dim < 0) {
      if (!tensor.same_bytes(first))
        refuse(stack, part.matrix,
               fmt::format("{} differs from that of part {}, allowed is one order of the shared input",
                           companion.name, parts.front().matrix.name));
      continue;
    }
    copy_slices({tensor, 0}, whole, begin, tensor.dim(dim), dim);
    begin += tensor.dim(dim);
  }
  return whole;
}

}  // namespace

QuantizedWeight stack_quantized(std::string name, const std::vector<QuantizedWeight>& parts) {
  if (parts.empty()) throw UnsupportedLayout(fmt::format("{}: 0 parts, allowed is 1 or more", name));
  const QuantizedMatrix& first = parts.front().matrix;
  QuantizedWeight stack{{std::move(name), first.format, 0, first.in}, {}};
  for (const auto& [matrix, tensors] : parts) {
    check_part(stack.matrix, matrix);
    require_stored(matrix.name, PlacedQuantized(matrix, ParallelStyle::column, 1), tensors, 1);
    for (const std::int64_t part : matrix.stacked()) stack.matrix.parts.push_back(part);
    stack.matrix.out += matrix.out;
  }
  const PlacedQuantized placed(stack.matrix, ParallelStyle::column, 1);
  for (const PlacedCompanion& companion : placed.companions())
    stack.tensors.emplace(companion.name, stacked(stack.matrix, companion, parts));
  return stack;
}

}  // namespace shardcheck
