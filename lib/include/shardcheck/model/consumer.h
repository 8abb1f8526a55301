// A consumer is a framework's convention for reading a rank's local tensors: which local rows are q, k, v,
// gate and up, and which tensor is the output projection. It is code, fixed per framework. It is derived
// from the geometry, the degree and the rank alone, and never sees the layout table, the placement or the
// plan that produced the shards: that independence is what makes a wrong layout visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Rows of a local file tensor that play one logical role on one rank: blocks of equal height, `stride` apart
/// (one per KV head of Megatron's fused qkv), or one block.
struct LocalRows {
  std::string tensor;      // file-tensor name, e.g. "layers.0.qkv"
  std::int64_t first = 0;  // first row of the first block (dimension 0)
  std::int64_t count = 0;  // rows in all
  std::int64_t block = 0;  // rows of one block; 0: all of them
  std::int64_t stride = 0;
  std::int64_t padded_to = 0;  // rows of the local tensor where padding follows the last one that is read
  bool interleaved_rotary = false;  // a head's rotary pairs lie side by side, halves apart are wanted

  /// One past the last row.
  std::int64_t end() const {
    return block == 0 ? first + count : first + (count / block - 1) * stride + block;
  }
};

/// Those rows of a rank's tensor in logical order: a view where they are one block, else a copy. `head_dim`
/// is that of the rotary heads. Throws std::out_of_range for rows outside the tensor.
Tensor read_rows(const Tensor& local, const LocalRows& where, std::int64_t head_dim);

/// What one rank runs: its share of heads and of the vocabulary.
struct LocalExtent {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  std::int64_t embed_begin = 0, embed_end = 0;  // token ids whose embedding rows are local
  std::int64_t head_begin = 0, head_end = 0;    // vocabulary rows of the local output head
};

/// How the bias of a row-parallel layer reaches the output: held whole and added once after the sum over
/// ranks, or one addend per rank (the first rank has all of it and the others zeros, or everyone a share).
enum class RowBias : std::uint8_t { after_sum, summed };

class Consumer {
 public:
  virtual ~Consumer() = default;
  virtual std::string_view name() const = 0;

  /// Throws UnsupportedLayout naming the extent and the degree when the framework cannot run a forward pass
  /// there. KV heads are tested first (the seed's order), then heads, ffn.
  virtual void require_supported(const Geometry& geometry, int degree) const = 0;

  /// Whether every rank holds all embedding rows, or all rows of the output head: the same answer on every
  /// rank, so that all of them enter the same collectives, also where one rank's share happens to be
  /// everything.
  virtual bool embedding_is_whole(const Geometry& geometry) const = 0;
  virtual bool head_is_whole(const Geometry& geometry) const = 0;

  virtual RowBias row_bias() const { return RowBias::after_sum; }

  virtual LocalExtent extent(const Geometry& geometry, int degree, int rank) const = 0;

  /// Where a logical role of a layer (or -1) lies among the rank's local tensors.
  virtual LocalRows locate(const Geometry& geometry, int degree, int rank, std::string_view role,
                           std::int64_t layer) const = 0;

  /// Local KV head that local query head `head` reads.
  virtual std::int64_t kv_head_of(const LocalExtent& extent, std::int64_t head) const;

  /// Every file tensor the consumer reads on a rank.
  std::vector<std::string> required_tensors(const Geometry& geometry, int degree, int rank) const;
};

/// Throws UnsupportedLayout naming the layout when no forward pass here runs it: a table without a consumer,
/// ranks along another axis than tp, or a degree that the consumer does not support.
void require_executable(const Layout& layout);

/// "hf", "megatron", "seed", "seed-summed-bias", "torchtitan", "vllm". Throws InvalidInput listing the known
/// ones.
const Consumer& consumer_named(std::string_view name);
std::vector<std::string> consumer_names();

}  // namespace shardcheck
