#include "cut_tensors.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardcheck::effective {
namespace {

constexpr int kMostRanks = 64;

}  // namespace

std::vector<Tensor> Loader::load(const CutTensor& tensor, int degree) const {
  return split_tensor(PlacedTensor(tensor.name, tensor.whole.shape(), tensor.placement, degree),
                      tensor.whole);
}

std::vector<Tensor> FirstRows::load(const CutTensor& tensor, int degree) const {
  std::vector<Tensor> shards = Loader::load(tensor, degree);
  if (!tensor.name.ends_with(name_ending_)) return shards;
  for (Tensor& shard : shards) shard = tensor.whole.rows(0, shard.dim(0));
  return shards;
}

ShardedTensors load_all(const std::vector<CutTensor>& tensors, int degree, const Loader& loader) {
  ShardedTensors all;
  for (const CutTensor& tensor : tensors) all[tensor.name] = loader.load(tensor, degree);
  return all;
}

std::optional<std::string> needs_few_ranks(const Case& c) {
  const int degree = c.target.tp_degree();
  if (degree == 1) return "one rank: it holds everything";
  if (degree > kMostRanks) return fmt::format("tp{}: more than {} ranks", degree, kMostRanks);
  return std::nullopt;
}

Tensor numbered(Shape shape, std::int64_t first) {
  Tensor tensor = Tensor::uninitialized(DType::f32, std::move(shape));
  for (float& value : tensor.mutable_f32()) value = static_cast<float>(first++);
  return tensor;
}

Tensor whole_numbers(Stream stream, Shape shape, std::int64_t largest) {
  Tensor tensor = Tensor::uninitialized(DType::f32, std::move(shape));
  for (float& value : tensor.mutable_f32()) {
    const auto magnitude = static_cast<float>(stream.integer(1, largest));
    value = stream.chance(1, 2) ? magnitude : -magnitude;
  }
  return tensor;
}

std::int64_t proper_divisor(Stream& stream, int degree) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d < degree; ++d) {
    if (degree % d == 0) divisors.push_back(d);
  }
  return stream.pick(divisors);
}

void append_rows(Rows& rows, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(begin + i);
}

Tensor columns_of(const Tensor& matrix, std::int64_t begin, std::int64_t count) {
  Tensor part = Tensor::uninitialized(DType::f32, {matrix.dim(0), count});
  auto out = part.mutable_f32().begin();
  for (std::int64_t row = 0; row < matrix.dim(0); ++row) {
    const auto values = matrix.f32().subspan(static_cast<std::size_t>(row * matrix.dim(1) + begin),
                                             static_cast<std::size_t>(count));
    out = std::ranges::copy(values, out).out;
  }
  return part;
}

}  // namespace shardcheck::effective
