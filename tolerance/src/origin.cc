#include "origin.h"

#include <fmt/format.h>

#include "shardcheck/model/weights.h"

namespace shardcheck {
namespace {

Shape shape_of(const Geometry& geometry, const std::string& logical) {
  for (const auto& tensor : logical_tensors(geometry)) {
    if (tensor.name == logical) return tensor.shape;
  }
  return {};
}

}  // namespace

std::string element_text(const Tensor& tensor, std::int64_t flat) {
  if (is_forward_dtype(tensor.dtype())) {
    const Tensor flattened = tensor.reshaped({tensor.elements()});
    return fmt::format("{:.9g}", flattened.rows(flat, 1).to(DType::f32).f32().front());
  }
  const auto size = static_cast<std::size_t>(size_bits(tensor.dtype()) / 8);
  std::string bytes;
  for (const std::byte byte : tensor.bytes().subspan(static_cast<std::size_t>(flat) * size, size)) {
    bytes += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return "bytes " + bytes;
}

std::string origin_text(const Geometry& geometry, const Tensor& tensor, std::int64_t flat) {
  if (tensor.dtype() != DType::f32) return element_text(tensor, flat);
  const auto bits = static_cast<std::uint32_t>(tensor.bits(flat));
  const auto origin = decode_fingerprint(geometry, bits);
  if (!origin) return fmt::format("no element of the checkpoint (bits 0x{:08x})", bits);
  return origin->tensor + coordinates(shape_of(geometry, origin->tensor), origin->index);
}

std::int64_t differing_elements(const Tensor& expected, const Tensor& actual) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < expected.elements(); ++i) count += expected.bits(i) == actual.bits(i) ? 0 : 1;
  return count;
}

}  // namespace shardcheck
