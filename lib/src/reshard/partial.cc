#include "partial.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "box_copy.h"

namespace shardcheck {
namespace {

void require_addable(const PlacedTensor& placed, DType dtype) {
  if (!is_forward_dtype(dtype) && dtype != DType::f64) {
    throw UnsupportedLayout(
        fmt::format("{}: {} at TP degree {} adds over ranks, which {} elements cannot (allowed: "
                    "f64 f32 bf16 f16)",
                    placed.name(), to_string(placed.placement()), placed.degree(), short_name(dtype)));
  }
}

double load(const Tensor& tensor, std::size_t i) {
  if (tensor.dtype() == DType::f64) return tensor.as<double>()[i];
  if (tensor.dtype() == DType::f32) return tensor.f32()[i];
  const std::uint16_t bits = tensor.as<std::uint16_t>()[i];
  return tensor.dtype() == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/// f32 with the last bit set when inexact: rounding it again to 16 bits equals rounding `value` once.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

void store(Tensor& tensor, std::size_t i, double value) {
  if (tensor.dtype() == DType::f64) {
    tensor.mutable_as<double>()[i] = value;
  } else if (tensor.dtype() == DType::f32) {
    tensor.mutable_f32()[i] = static_cast<float>(value);
  } else {
    const float odd = round_to_odd(value);
    tensor.mutable_as<std::uint16_t>()[i] =
        tensor.dtype() == DType::bf16 ? f32_to_bf16(odd) : f32_to_f16(odd);
  }
}

Tensor copy_of(const PlacedTensor& placed, const Tensor& tensor) {
  Tensor copy = allocate_tensor(placed.name(), tensor.dtype(), tensor.shape());
  if (!tensor.bytes().empty())
    std::memcpy(copy.mutable_bytes().data(), tensor.bytes().data(), tensor.bytes().size());
  return copy;
}

}  // namespace

std::vector<Tensor> split_partial(const PlacedTensor& placed, const Partial& partial, const Tensor& full) {
  const int degree = placed.degree();
  std::vector<Tensor> shards;
  if (partial.encoding == Partial::Encoding::first_rank) {
    shards.push_back(copy_of(placed, full));
    while (static_cast<int>(shards.size()) < degree)
      shards.push_back(Tensor::zeros(full.dtype(), full.shape()));
    return shards;
  }
  require_addable(placed, full.dtype());
  Tensor share = copy_of(placed, full);
  for (std::size_t i = 0; i < static_cast<std::size_t>(full.elements()); ++i)
    store(share, i, load(full, i) / degree);
  for (int rank = 0; rank < degree; ++rank) shards.push_back(copy_of(placed, share));
  return shards;
}

Tensor sum_partial(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  require_addable(placed, shards.front().dtype());
  Tensor sum = copy_of(placed, shards.front());
  for (std::size_t i = 0; i < static_cast<std::size_t>(sum.elements()); ++i) {
    double total = load(sum, i);
    bool changed = false;
    for (std::size_t rank = 1; rank < shards.size(); ++rank) {
      const double addend = load(shards[rank], i);
      if (addend == 0.0) continue;
      total += addend;
      changed = true;
    }
    if (changed) store(sum, i, total);
  }
  return sum;
}

}  // namespace shardcheck
