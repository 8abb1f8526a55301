// One row-parallel linear layer over the ranks of a group, cut at any boundaries: what ShardedModel runs for
// o_proj and down, for laws and benchmarks about the reduction alone. A model's degree must divide its heads;
// a sum may be cut anywhere, under tree on leaf boundaries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/model/forward_steps.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

struct RowParallelLinear {
  Tensor x;        // f32 [rows, k]
  Tensor weights;  // f32, bf16 or f16 [n, k]
  Arithmetic arithmetic = Arithmetic::tree;
  TreeShape shape = TreeShape::halving;
  std::int64_t leaf = 128;
  DType storage = DType::f32;  // what the output is rounded to
};

/// Boundaries of K = `k` over `degree` ranks that divide it.
std::vector<std::int64_t> even_cuts(std::int64_t k, int degree);

/// Boundaries of K = `k` over `degree` ranks: whole leaves, as many on each rank as on any other or one more.
std::vector<std::int64_t> leaf_cuts(std::int64_t k, std::int64_t leaf, int degree);

/// x W^T [rows, n] on every local rank, rank r of the collective holding columns [cuts[r], cuts[r + 1]).
/// Throws std::invalid_argument when the cuts are not degree + 1 ascending boundaries from 0 to k, and
/// UnsupportedLayout when, under tree, one of them lies inside a leaf; it names the largest leaf that would
/// do.
std::vector<Tensor> run(const RowParallelLinear& layer, std::span<const std::int64_t> cuts,
                        Collective& collective, const ForwardSteps& steps = right_steps(),
                        CoverExchange exchange = CoverExchange::automatic);

}  // namespace shardcheck
