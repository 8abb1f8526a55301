// A row-parallel layer on the local ranks of a group: each rank has a part of K, and the output is the sum
// over ranks, as the arithmetic says, plus the bias, in f32 and then rounded to the storage dtype.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/numerics.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/model/forward_steps.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {

/// One matrix per local rank.
using RankMatrices = std::vector<Matrix>;

/// One rank's part of a layer.
struct RowParallelPart {
  int rank;
  const LinearWeights& weights;
  std::span<const float> bias;  // as the rank holds it; empty: none
};

class RowParallelSum {
 public:
  RowParallelSum(const Geometry& geometry, const Numerics& numerics, const Consumer& consumer,
                 Collective& collective, const ForwardSteps& steps, CoverExchange exchange)
      : geometry_(geometry),
        numerics_(numerics),
        consumer_(consumer),
        collective_(collective),
        steps_(steps),
        exchange_(exchange) {}

  /// The layer's name and place, where its sum is cut (degree + 1 ascending boundaries, from 0 to K), and the
  /// leaf of its tree.
  struct Layer {
    std::string_view role;
    std::int64_t layer;
    std::vector<std::int64_t> cuts;
    std::int64_t leaf;
    bool scatters = false;  // each rank keeps its share of the rows: a reduce-scatter

    std::int64_t k() const { return cuts.back(); }
  };

  /// xs[slot] [rows, part of K] to the stored output of every local rank: [rows, d_model], or its share of
  /// the rows (see StepRows::share) where the layer scatters.
  RankMatrices operator()(const Layer& layer, const std::vector<RowParallelPart>& parts,
                          const RankMatrices& xs) const;

 private:
  int degree() const { return collective_.degree(); }
  StepSite site(const Layer& layer, int rank) const {
    return {geometry_, numerics_.contract, numerics_.arithmetic, degree(), rank, layer.layer};
  }
  std::int64_t leaf_of(const Layer& layer) const {
    return steps_.leaf(site(layer, 0), layer.role, layer.k(), layer.leaf);
  }
  /// Throws UnsupportedLayout naming the layer and the largest leaf that would do.
  void require_cuts_between_leaves(const Layer& layer) const;
  /// A rank's columns of the tree.
  Reduction part_of(const Layer& layer, int rank) const;
  /// The tree's nodes that a rank ships.
  std::vector<TreeNode> nodes_of_rank(const Layer& layer, int rank) const;
  int reductions(const Layer& layer, const std::vector<RowParallelPart>& parts) const;

  /// The same with biases as the steps left them.
  RankMatrices stepped(const Layer&, const std::vector<RowParallelPart>&, const RankMatrices&) const;
  RankMatrices whole_sum(const Layer&, const std::vector<RowParallelPart>&, const RankMatrices&) const;
  RankMatrices native_sum(const Layer&, const std::vector<RowParallelPart>&, const RankMatrices&) const;
  RankMatrices tree_sum(const Layer&, const std::vector<RowParallelPart>&, const RankMatrices&) const;
  RankMatrices exact_sum(const Layer&, const std::vector<RowParallelPart>&, const RankMatrices&) const;

  /// The nodes of each local rank's cover, each [rows, d_model], one after the other.
  std::vector<std::vector<float>> covers(const Layer&, const std::vector<RowParallelPart>&,
                                         const RankMatrices&) const;
  /// `width` values of the root, from as many values of every node, node after node.
  std::vector<float> complete(const Layer& layer, std::span<const std::byte> gathered,
                              std::int64_t width) const;
  RankMatrices one_shot(const Layer&, const std::vector<std::vector<float>>& covers, std::int64_t rows) const;
  /// First shot: every local rank's slice of the sum, finished in f32. Rank r has elements
  /// [bounds[r], bounds[r + 1]).
  std::vector<std::vector<float>> finished_slices(const Layer&, const std::vector<std::vector<float>>& covers,
                                                  std::int64_t width, std::span<const std::int64_t> bounds,
                                                  std::span<const float> bias) const;
  RankMatrices two_shot(const Layer&, const std::vector<std::vector<float>>& covers, std::int64_t rows,
                        std::span<const float> bias) const;
  RankMatrices reduce_scatter(const Layer&, const std::vector<std::vector<float>>& covers, std::int64_t rows,
                              std::span<const float> bias) const;
  bool exchanges_in_two_shots(std::int64_t rows) const;
  /// Boundaries of `count` units of `unit` elements shared out over the ranks.
  std::vector<std::int64_t> bounds_of(std::int64_t count, std::int64_t unit) const;

  ExactPartial exact_part(const Layer&, const RowParallelPart&, const Matrix& x,
                          std::span<const std::int32_t> tops) const;
  std::vector<std::vector<std::int32_t>> agreed_tops(const RankMatrices& xs) const;
  void merge(std::vector<ExactPartial>& partials) const;

  /// What is added to the sum over ranks: a Partial bias is summed over ranks in f64 and rounded once first.
  std::vector<float> whole_bias(const std::vector<RowParallelPart>& parts) const;
  void reduce_again(RankMatrices& sums, int times) const;
  void finish(RankMatrices& sums, std::span<const float> bias) const;

  const Geometry& geometry_;
  const Numerics& numerics_;
  const Consumer& consumer_;
  Collective& collective_;
  const ForwardSteps& steps_;
  CoverExchange exchange_;
};

}  // namespace shardcheck
