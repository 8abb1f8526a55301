// A consumer is a framework's convention for reading a rank's local tensors: which local rows are q, k, v,
// gate and up, and which tensor is the output projection. It is code, fixed per framework. It is derived
// from the geometry, the degree and the rank alone, and never sees the layout table, the placement or the
// plan that produced the shards: that independence is what makes a wrong layout visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Rows of a local file tensor that play one logical role on one rank: blocks of equal height, `stride` apart
/// (one per KV head of Megatron's fused qkv), or one block.
struct LocalRows {
  std::string tensor;      // file-tensor name, e.g. "layers.0.qkv"
  std::int64_t first = 0;  // first row of the first block
  std::int64_t count = 0;  // rows in all
  std::int64_t block = 0;  // rows of one block; 0: all of them
  std::int64_t stride = 0;
  std::int64_t padded_to = 0;  // rows of the local tensor where padding follows the last one that is read
  bool interleaved_rotary = false;  // a head's rotary pairs lie side by side, halves apart are wanted
  std::int64_t columns = 0;         // of the role on this rank; 0: a vector
  bool transposed = false;          // the tensor is [columns, rows] (GPT-2's Conv1D)
  std::int64_t stack = 0;           // tensors of this form along the file's dimension 0; 0: not stacked
  std::int64_t in_stack = 0;        // which of them

  /// Shape of a local tensor of which these rows, with their padding, are the last.
  Shape shape() const;
  /// One past the last row.
  std::int64_t end() const {
    return block == 0 ? first + count : first + (count / block - 1) * stride + block;
  }
};

/// Those rows of a rank's tensor in logical order and orientation: a view where they are one block of a
/// tensor that is not transposed, else a copy. `head_dim` is that of the rotary heads. Throws
/// std::out_of_range for rows outside the tensor.
Tensor read_rows(const Tensor& local, const LocalRows& where, std::int64_t head_dim);

/// What one rank runs: its share of heads, of channels and of the vocabulary.
struct LocalExtent {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  std::int64_t expert_ffn = 0;                  // of one expert, 0 without
  std::int64_t shared_ffn = 0;                  // of the shared expert, 0 without
  std::int64_t embed_begin = 0, embed_end = 0;  // token ids whose embedding rows are local
  std::int64_t head_begin = 0, head_end = 0;    // vocabulary rows of the local output head
};

/// How the bias of a row-parallel layer (o_proj, down) reaches the output: held whole and added once after
/// the sum over ranks, or one addend per rank (the first rank has all of it and the others zeros, or everyone
/// a share).
enum class RowBias : std::uint8_t { after_sum, summed };

class Consumer {
 public:
  virtual ~Consumer() = default;
  virtual std::string_view name() const = 0;

  /// Throws UnsupportedLayout naming the extent and the TP degree when the framework cannot run a forward
  /// pass there: KV heads are tested first (the seed's order), then heads, ffn, expert_ffn and shared_ffn
  /// where layers have them, then the vocabulary; and for a role of the geometry that the convention does not
  /// hold.
  virtual void require_supported(const Geometry& geometry, int degree) const = 0;

  /// Whether a forward pass over this convention's shards can have ranks along an axis: where `locate` holds
  /// on each of them, whatever its coordinate there.
  virtual bool runs_over(Axis axis) const = 0;

  /// Whether every rank holds all embedding rows, or all rows of the output head: the same answer on every
  /// rank, so that all of them enter the same collectives, also where one rank's share happens to be
  /// everything.
  virtual bool embedding_is_whole(const Geometry& geometry) const = 0;
  virtual bool head_is_whole(const Geometry& geometry) const = 0;

  virtual RowBias row_bias() const { return RowBias::after_sum; }

  virtual LocalExtent extent(const Geometry& geometry, int degree, int rank) const = 0;

  /// Where a logical role of a layer (or -1) and expert (or -1) lies among the rank's local tensors; layers
  /// and experts are counted over the whole model. Throws std::invalid_argument for a role that the
  /// convention does not hold.
  virtual LocalRows locate(const Geometry& geometry, int degree, int rank, std::string_view role,
                           std::int64_t layer, std::int64_t expert = -1) const = 0;

  /// Experts [first, last) of a rank along ep. Throws UnsupportedLayout when ep_degree does not divide them.
  std::pair<std::int64_t, std::int64_t> local_experts(const Geometry& geometry, int ep_degree,
                                                      int ep_rank) const;

  /// Local KV head that local query head `head` reads.
  virtual std::int64_t kv_head_of(const LocalExtent& extent, std::int64_t head) const;

  /// Every file tensor the consumer reads on a rank that has every layer and expert, sorted.
  std::vector<std::string> required_tensors(const Geometry& geometry, int degree, int rank) const;
};

/// Throws UnsupportedLayout when no forward pass of the consumer runs over the ranks of the layout: an axis
/// that it does not run over (etp, also of degree 1), experts that do not divide by ep, or a TP degree that
/// it does not support.
void require_executable(const Consumer& consumer, const Geometry& geometry, const LayoutName& name);

/// The same for a layout, and for one of a table without a consumer.
void require_executable(const Layout& layout);

/// Whether a table of the name exists and its consumer runs a forward pass over those axes at those degrees.
bool has_running_consumer(const LayoutName& name, const Geometry& geometry);

/// "hf", "hf-gpt2", "hf-mixtral", "hf-moe", "hf-neox", "megatron", "megatron-moe", "seed",
/// "seed-summed-bias", "torchtitan", "vllm", "vllm-moe". Throws InvalidInput listing the known ones.
const Consumer& consumer_named(std::string_view name);
std::vector<std::string> consumer_names();

}  // namespace shardcheck
