// Matrices and floats as the bytes that the ranks of a group exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/row_parallel.h"
#include "shardcheck/comm/mesh_groups.h"

namespace shardcheck {

/// Rows of `width` floats. Throws InvalidShards when the bytes are no whole number of rows.
Matrix matrix_of(std::span<const std::byte> bytes, std::int64_t width);

/// Every slot's rows become those of the whole group, in rank order.
void gather_rows(const MeshGroups::Group& group, RankMatrices& xs);

/// In place: the sum of the bits over the slots of the group, element by element. Where one slot's value is
/// not +0 it passes unchanged, -0.0 included, under any reduction order.
void sum_bits(const MeshGroups::Group& group, RankMatrices& xs);

/// In place: the sum of the values over the slots of the group, element by element, in f32.
void sum_values(const MeshGroups::Group& group, RankMatrices& xs);

/// In place: the largest value over the ranks of the group, element by element; -inf and +-0 are ordered as
/// numbers, NaN above all.
void all_reduce_max(Collective& collective, std::span<std::vector<float>> buffers);

/// Values and sizes one after the other.
class FloatWriter {
 public:
  void put_count(std::size_t count);
  void put(std::span<const float> values);
  void put_bytes(std::span<const std::byte> bytes);
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what FloatWriter wrote. Throws InvalidShards when the bytes end early.
class FloatReader {
 public:
  explicit FloatReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t count();
  std::vector<float> floats(std::size_t count);
  std::span<const std::byte> take(std::size_t size);

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace shardcheck
