// Low-rank adapters over a tensor-parallel group: W + scale B A, in whole numbers, so that every sum is
// exact.
#pragma once

#include "cut_tensors.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

/// A weight with its adapter. Parts stacked in it have an A each, stacked as well, and share one B.
struct AdaptedWeight {
  CutTensor base;                   // [out, in], cut along its rows, or along its columns
  std::vector<std::int64_t> parts;  // rows of each part
  Tensor a;                         // [parts * rank, in]
  Tensor b;                         // [out, rank]
  std::vector<Tensor> updates;      // of a, one per rank of the group: what its last step adds
  std::int64_t rank() const { return b.dim(1); }
};

struct ExpertAdapter {
  std::string name;
  Tensor base;  // [out, in], cut along its columns
  Tensor a, b;  // whole on every rank
};

/// layers.0.qkv, with fewer key heads than ranks in some cases, layers.0.gate_up and layers.0.o_proj.
std::vector<AdaptedWeight> adapted_weights(const Case& c);

/// How an engine applies adapters.
class AdapterEngine {
 public:
  virtual ~AdapterEngine() = default;
  /// How often the adapter is in the weight: 1.
  virtual int merges() const { return 1; }
  /// How many ranks add the whole adapter of an expert to their partial sum: 1.
  virtual int adding_ranks(int /*degree*/) const { return 1; }
  /// A after the step of which every rank has worked out a part.
  virtual Tensor stepped_a(const AdaptedWeight& weight) const;
  /// Rows of B on each rank, those of its rows of the weight.
  virtual std::vector<Tensor> local_b(const AdaptedWeight& weight, int degree) const;
  /// The part that a row of a rank's weight belongs to.
  virtual std::int64_t part_of(const std::vector<std::int64_t>& local_parts, std::int64_t row) const;
  /// Which of the adapter's `rank` products a rank adds up: [first, second), all.
  virtual std::pair<std::int64_t, std::int64_t> products(std::int64_t rank, int /*degree*/,
                                                         int /*on*/) const {
    return {0, rank};
  }
};

/// Rows of each part on a rank.
std::vector<std::int64_t> local_parts(const AdaptedWeight& weight, int degree);

/// Those weights on every rank, and layers.0.experts.0.down summed over the ranks of its expert.
ShardedTensors adapted(const Case& c, const AdapterEngine& engine);

}  // namespace shardcheck::effective
