// Quantised weights of a model over a tensor-parallel group, one per format and style.
#pragma once

#include "cut_tensors.h"
#include "shardcheck/mutators/effective.h"
#include "shardcheck/mutators/quantized_problem.h"

namespace shardcheck::effective {

/// layers.0.qkv and o_proj in GPTQ (o_proj with act_order), layers.1.qkv and down in AWQ, layers.2.qkv in FP8
/// with a scale per channel and layers.2.gate_up per tensor, layers.3.gate_up in blocks, layers.3.down in
/// MXFP8. Their extents and parameters are drawn so that every rank holds whole words, groups and blocks.
std::vector<QuantizedProblem> quantized_weights(const Case& c);

/// A row of a rank where ranks may begin inside a block of scales.
struct BlockRow {
  int rank, degree;
  std::int64_t begin, row;     // of the rank in the whole weight, in the rank
  std::int64_t block, blocks;  // rows of a block, blocks of the whole weight
};

/// How an engine reads what its ranks hold of a quantised weight.
class QuantizedEngine {
 public:
  virtual ~QuantizedEngine() = default;
  /// f32 [local_out, local_in] of the tensors that a rank was given.
  virtual Tensor weight(const QuantizedProblem& problem, const PlacedQuantized& placed, int rank,
                        TensorMap shard) const;
  /// The row of block scales that a rank uses.
  virtual std::int64_t block_of(const BlockRow& at) const;
};

/// Also layers.3.gate, in blocks of which every second rank begins half-way through one: no placement has it,
/// so that each rank holds the blocks it has rows of.
ShardedTensors dequantized_weights(const Case& c, const QuantizedEngine& engine);

/// An engine that damages the stored tensors of one format, which then dequantise as usual.
template <typename Format>
class DamagedStorage : public QuantizedEngine {
 public:
  Tensor weight(const QuantizedProblem& problem, const PlacedQuantized& placed, int rank,
                TensorMap shard) const final {
    if (const auto* format = std::get_if<Format>(&problem.matrix.format))
      damage(problem, *format, rank, shard);
    return QuantizedEngine::weight(problem, placed, rank, std::move(shard));
  }

 private:
  virtual void damage(const QuantizedProblem& problem, const Format& format, int rank,
                      TensorMap& shard) const = 0;
};

}  // namespace shardcheck::effective
