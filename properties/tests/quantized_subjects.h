// Splits of quantised weights that went wrong in real engines.
#pragma once

#include <algorithm>

#include "shardcheck/case/subject.h"

namespace shardcheck {

/// Columns [begin, end) of a matrix.
inline Tensor columns_of(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  Tensor part = Tensor::uninitialized(tensor.dtype(), {tensor.dim(0), end - begin});
  for (std::int64_t row = 0; row < tensor.dim(0); ++row) {
    for (std::int64_t column = begin; column < end; ++column)
      part.set_bits(row * (end - begin) + column - begin, tensor.bits(row * tensor.dim(1) + column));
  }
  return part;
}

/// A split that knows where an input channel's group is, but not that act_order mixes the groups.
class ActOrderSplit : public Subject {
 public:
  std::vector<TensorMap> split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                         ParallelStyle style, int degree) override {
    auto shards = Subject::split_quantized(matrix, full, style, degree);
    const auto* format = std::get_if<Gptq>(&matrix.format);
    const std::int64_t groups = full.contains("scales") ? full.at("scales").dim(0) : 0;
    if (format == nullptr || !format->act_order || style != ParallelStyle::row || groups % degree != 0)
      return shards;
    for (int rank = 0; rank < degree; ++rank)
      damage(full, shards[static_cast<std::size_t>(rank)], rank, groups / degree);
    return shards;
  }

 private:
  virtual void damage(const TensorMap& full, TensorMap& shard, int rank, std::int64_t groups) = 0;
};

/// Every rank gets its share of the groups, as without act_order.
class SlicesScalesUnderActOrder final : public ActOrderSplit {
  void damage(const TensorMap& full, TensorMap& shard, int rank, std::int64_t groups) override {
    for (const char* name : {"scales", "qzeros"})
      shard.insert_or_assign(name, full.at(name).rows(rank * groups, groups));
  }
};

/// Group ids count from the rank's first group: every shape is right.
class RenumbersGroups final : public ActOrderSplit {
  void damage(const TensorMap&, TensorMap& shard, int, std::int64_t groups) override {
    for (std::int32_t& id : shard.at("g_idx").mutable_as<std::int32_t>())
      id %= static_cast<std::int32_t>(groups);
  }
};

/// Word columns of a rank are rounded down, whatever columns they hold.
class CutsInsideWords final : public Subject {
 public:
  std::vector<TensorMap> split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                         ParallelStyle style, int degree) override {
    if (!std::holds_alternative<Awq>(matrix.format) || style != ParallelStyle::column)
      return Subject::split_quantized(matrix, full, style, degree);
    std::vector<TensorMap> shards(static_cast<std::size_t>(degree));
    for (std::int64_t rank = 0; rank < degree; ++rank) {
      for (const auto& [name, tensor] : full)
        shards[static_cast<std::size_t>(rank)].emplace(
            name, columns_of(tensor, rank * tensor.dim(1) / degree, (rank + 1) * tensor.dim(1) / degree));
    }
    return shards;
  }
};

/// Rows of block scales begin and end at the next whole block: vLLM's adjust_block_scale_shard.
class RoundsBlockOffsetsUp final : public Subject {
 public:
  std::vector<TensorMap> split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                         ParallelStyle style, int degree) override {
    const auto* format = std::get_if<Fp8Block>(&matrix.format);
    if (format == nullptr || style != ParallelStyle::column)
      return Subject::split_quantized(matrix, full, style, degree);
    std::vector<TensorMap> shards(static_cast<std::size_t>(degree));
    for (std::int64_t rank = 0; rank < degree; ++rank) {
      std::vector<Run> rows, blocks;
      std::int64_t offset = 0;
      for (const std::int64_t part : matrix.stacked()) {
        const std::int64_t length = part / degree, begin = offset + rank * length;
        const auto up = [format](std::int64_t n) { return (n + format->block_out - 1) / format->block_out; };
        rows.push_back({begin, length});
        blocks.push_back({up(begin), up(length)});
        offset += part;
      }
      TensorMap& shard = shards[static_cast<std::size_t>(rank)];
      shard.emplace("weight", rows_of(full.at("weight"), rows));
      shard.emplace("weight_scale_inv", rows_of(full.at("weight_scale_inv"), blocks));
    }
    return shards;
  }

 private:
  /// The rows of the runs, as far as the tensor has them.
  static Tensor rows_of(const Tensor& tensor, std::vector<Run> runs) {
    std::int64_t count = 0, at = 0;
    for (Run& run : runs) {
      run.global = std::min(run.global, tensor.dim(0));
      run.length = std::min(run.length, tensor.dim(0) - run.global);
      count += run.length;
    }
    Tensor part = Tensor::uninitialized(tensor.dtype(), {count, tensor.dim(1)});
    for (const Run& run : runs) {
      for (std::int64_t i = 0; i < run.length * tensor.dim(1); ++i)
        part.set_bits(at++, tensor.bits(run.global * tensor.dim(1) + i));
    }
    return part;
  }
};

}  // namespace shardcheck
