#include "shardcheck/model/weights.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <set>

#include "shardcheck/tensor/stream.h"
#include "tensor/mix64.h"

namespace shardcheck {
namespace {

/// How a tensor is drawn: mean + stddev * N(0, 1).
struct Normal {
  float mean = 0.0F;
  float stddev = 0.0F;
};

bool is_norm(const LogicalTensor& t) { return t.role.ends_with("norm"); }
bool is_bias(const LogicalTensor& t) { return t.role.ends_with("bias"); }

Normal distribution_of(const LogicalTensor& tensor, WeightStyle style) {
  if (style == WeightStyle::recorded) return is_norm(tensor) ? Normal{1.0F, 0.1F} : Normal{0.0F, 0.02F};
  if (is_norm(tensor)) return {1.0F, 0.5F};
  if (is_bias(tensor)) return {0.0F, 0.5F};
  if (tensor.role == "embed" || tensor.role == "sinks") return {0.0F, 1.0F};
  if (tensor.role == "positions") return {0.0F, 0.5F};
  const auto fan_in = static_cast<float>(tensor.shape.back());
  return {0.0F, 1.0F / std::sqrt(fan_in)};
}

/// First code of a tensor: 1 + the elements of all tensors before it. 0 stays free for unwritten memory.
std::vector<std::uint64_t> first_codes(const std::vector<LogicalTensor>& tensors) {
  std::vector<std::uint64_t> first = {1};
  for (const auto& tensor : tensors) {
    first.push_back(first.back() + static_cast<std::uint64_t>(element_count(tensor.shape)));
  }
  return first;
}

/// A code over 16 bits, where it cannot be stored whole.
std::uint16_t hash16(std::uint64_t code) { return static_cast<std::uint16_t>(mix64(code) >> 48); }

Tensor fingerprint(const LogicalTensor& tensor, std::uint64_t first_code, DType dtype) {
  Tensor out = Tensor::uninitialized(dtype, tensor.shape);
  if (dtype == DType::f32) {
    auto code = static_cast<std::uint32_t>(first_code);
    for (auto& value : out.mutable_f32()) value = std::bit_cast<float>(code++);
  } else {
    for (auto& bits : out.mutable_as<std::uint16_t>()) bits = hash16(first_code++);
  }
  return out;
}

TensorMap make_fingerprints(const Geometry& geometry, DType dtype) {
  const auto tensors = logical_tensors(geometry);
  const auto first = first_codes(tensors);
  if (first.back() >= (std::uint64_t{1} << 32)) {
    throw InvalidInput(fmt::format(
        "a fingerprint numbers every element in 32 bits; the model has {} elements", first.back() - 1));
  }
  TensorMap weights;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    weights.emplace(tensors[i].name, fingerprint(tensors[i], first[i], dtype));
  }
  return weights;
}

}  // namespace

TensorMap make_weights(const Geometry& geometry, WeightStyle style, std::uint64_t seed, DType dtype) {
  validate(geometry);
  if (!is_forward_dtype(dtype)) {
    throw InvalidInput(
        fmt::format("dtype={} is not one a model is stored in: allowed f32, bf16, f16", short_name(dtype)));
  }
  if (style == WeightStyle::fingerprint) return make_fingerprints(geometry, dtype);
  TensorMap weights;
  for (const auto& tensor : logical_tensors(geometry)) {
    const Normal normal = distribution_of(tensor, style);
    Tensor values = Tensor::uninitialized(DType::f32, tensor.shape);
    fill_normal(values.mutable_f32(), stream_key(seed, "weights/" + tensor.name), normal.mean, normal.stddev);
    weights.emplace(tensor.name, values.to(dtype));
  }
  return weights;
}

std::optional<FingerprintOrigin> decode_fingerprint(const Geometry& geometry, std::uint32_t bits) {
  const auto tensors = logical_tensors(geometry);
  const auto first = first_codes(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (bits >= first[i] && bits < first[i + 1]) {
      return FingerprintOrigin{tensors[i].name, static_cast<std::int64_t>(bits - first[i])};
    }
  }
  return std::nullopt;
}

Tokens make_tokens(const Geometry& geometry, std::int64_t batch, std::int64_t length, std::uint64_t seed) {
  if (batch < 1 || length < 1) {
    throw InvalidInput(fmt::format("batch={} length={}: both must be at least 1", batch, length));
  }
  Tokens tokens{batch, length, {}};
  Stream stream(seed, "tokens");
  for (std::int64_t i = 0; i < tokens.count(); ++i) {
    tokens.ids.push_back(static_cast<std::int32_t>(stream.integer(0, geometry.vocab - 1)));
  }
  return tokens;
}

void require_weights_of(const Geometry& geometry, const TensorMap& weights) {
  std::set<std::string, std::less<>> known;
  for (const auto& tensor : logical_tensors(geometry)) {
    known.insert(tensor.name);
    const auto found = weights.find(tensor.name);
    if (found == weights.end()) {
      throw InvalidInput(
          fmt::format("weights: tensor {} {} is missing", tensor.name, to_string(tensor.shape)));
    }
    if (found->second.shape() != tensor.shape) {
      throw InvalidInput(fmt::format("weights: tensor {} has shape {}, expected {}", tensor.name,
                                     to_string(found->second.shape()), to_string(tensor.shape)));
    }
    if (!is_forward_dtype(found->second.dtype())) {
      throw InvalidInput(fmt::format("weights: tensor {} has dtype {}, allowed f32, bf16, f16", tensor.name,
                                     short_name(found->second.dtype())));
    }
  }
  for (const auto& [name, tensor] : weights) {
    if (!known.contains(name)) {
      throw InvalidInput(
          fmt::format("weights: tensor {} {} is not part of the geometry", name, to_string(tensor.shape())));
    }
  }
}

}  // namespace shardcheck
