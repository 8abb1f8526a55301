#include "model/group_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace shardcheck {
namespace {

/// Maps floats to integers of the same order, any NaN to the largest of them.
std::int32_t ordered(float value) {
  if (std::isnan(value)) return std::numeric_limits<std::int32_t>::max();
  const auto bits = std::bit_cast<std::int32_t>(value);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

float unordered(std::int32_t value) { return std::bit_cast<float>(value >= 0 ? value : value ^ 0x7fffffff); }

}  // namespace

Matrix matrix_of(std::span<const std::byte> bytes, std::int64_t width) {
  const auto row_bytes = static_cast<std::size_t>(width) * sizeof(float);
  if (row_bytes == 0 || bytes.size() % row_bytes != 0)
    throw InvalidShards(
        fmt::format("ranks sent {} bytes where rows of {} values were expected", bytes.size(), width));
  Matrix x(static_cast<std::int64_t>(bytes.size() / row_bytes), width);
  if (!bytes.empty()) std::memcpy(x.values.data(), bytes.data(), bytes.size());
  return x;
}

void gather_rows(const MeshGroups::Group& group, RankMatrices& xs) {
  std::vector<std::span<const std::byte>> sends;
  for (const std::size_t slot : group.slots) sends.push_back(std::as_bytes(std::span(xs[slot].values)));
  std::vector<std::size_t> sizes;
  const Matrix all =
      matrix_of(group.collective->all_gather_bytes(sends, sizes), xs[group.slots.front()].width);
  for (const std::size_t slot : group.slots) xs[slot] = all;
}

void sum_bits(const MeshGroups::Group& group, RankMatrices& xs) {
  std::vector<std::vector<std::uint32_t>> bits;
  std::vector<std::span<std::uint32_t>> buffers;
  for (const std::size_t slot : group.slots) {
    auto& own = bits.emplace_back();
    for (const float value : xs[slot].values) own.push_back(std::bit_cast<std::uint32_t>(value));
  }
  for (auto& buffer : bits) buffers.emplace_back(buffer);
  group.collective->all_reduce_sum_u32(buffers);
  for (std::size_t i = 0; i < group.slots.size(); ++i)
    std::ranges::transform(bits[i], xs[group.slots[i]].values.begin(),
                           [](std::uint32_t word) { return std::bit_cast<float>(word); });
}

void sum_values(const MeshGroups::Group& group, RankMatrices& xs) {
  std::vector<std::span<float>> buffers;
  for (const std::size_t slot : group.slots) buffers.emplace_back(xs[slot].values);
  group.collective->all_reduce_sum(buffers);
}

void all_reduce_max(Collective& collective, std::span<std::vector<float>> buffers) {
  std::vector<std::vector<std::int32_t>> integers;
  std::vector<std::span<std::int32_t>> spans;
  for (const auto& buffer : buffers) {
    auto& own = integers.emplace_back();
    for (const float value : buffer) own.push_back(ordered(value));
  }
  for (auto& own : integers) spans.emplace_back(own);
  collective.all_reduce_max_i32(spans);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t j = 0; j < buffers[i].size(); ++j) buffers[i][j] = unordered(integers[i][j]);
  }
}

void FloatWriter::put_count(std::size_t count) {
  const std::uint64_t word = count;
  put_bytes(std::as_bytes(std::span(&word, 1)));
}

void FloatWriter::put(std::span<const float> values) { put_bytes(std::as_bytes(values)); }

void FloatWriter::put_bytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::span<const std::byte> FloatReader::take(std::size_t size) {
  if (size > bytes_.size())
    throw InvalidShards(fmt::format("ranks sent {} bytes where {} were expected", bytes_.size(), size));
  const auto taken = bytes_.first(size);
  bytes_ = bytes_.subspan(size);
  return taken;
}

std::size_t FloatReader::count() {
  std::uint64_t word = 0;
  std::memcpy(&word, take(sizeof(word)).data(), sizeof(word));
  return static_cast<std::size_t>(word);
}

std::vector<float> FloatReader::floats(std::size_t count) {
  if (count > bytes_.size() / sizeof(float)) take(bytes_.size() + 1);
  std::vector<float> values(count);
  const auto taken = take(count * sizeof(float));
  if (count > 0) std::memcpy(values.data(), taken.data(), taken.size());
  return values;
}

}  // namespace shardcheck
