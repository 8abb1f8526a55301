// Log-softmax over a vocabulary that may be cut over ranks: the maximum is exact and taken first, the sum of
// exponentials follows the arithmetic, and log-probabilities are elementwise from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/numerics.h"

namespace shardcheck {

/// Largest value of every row that is not NaN; -inf where there is none.
std::vector<float> row_maxima(const Matrix& x);

/// (logit - maximum) - log_sum, two roundings.
inline float logprob(float logit, float maximum, float log_sum) { return (logit - maximum) - log_sum; }

/// The leaf of the sum over the vocabulary under tree: any boundary is one between leaves.
constexpr std::int64_t kVocabularyLeaf = 1;

/// Sums over the vocabulary of exp(logit - maximum), row by row. native: one ascending chain on every rank,
/// ranks added in their order; tree: the tree over leaves of `leaf` entries; exact: the exact sum, rounded
/// once.
class SumOfExponentials {
 public:
  SumOfExponentials(const Numerics& numerics, std::int64_t vocab, std::int64_t leaf)
      : numerics_(numerics), vocab_(vocab), leaf_(leaf) {}

  /// Throws UnsupportedLayout when, under tree, columns [begin, end) of a rank begin or end inside a leaf. To
  /// be asked about every rank before any of them exchanges something.
  void require_between_leaves(std::int64_t begin, std::int64_t end) const;

  /// What a rank that holds columns [begin, end) of the vocabulary ships, for the logits [rows, end - begin]
  /// it has. Throws UnsupportedLayout when under tree a boundary lies inside a leaf.
  std::vector<std::byte> partial(const Matrix& logits, std::span<const float> maxima, std::int64_t begin,
                                 std::int64_t end) const;

  struct Part {
    std::pair<std::int64_t, std::int64_t> range;
    std::span<const std::byte> bytes;
  };
  /// The sum of every row from the parts of all ranks, ranges ascending and without a gap. Throws
  /// InvalidShards when a part has another size than its range asks for.
  std::vector<float> complete(std::int64_t rows, const std::vector<Part>& parts) const;

 private:
  /// Maximal nodes of the tree inside a range.
  std::vector<TreeNode> nodes_of(std::int64_t begin, std::int64_t end) const;
  /// When leaves of [begin, end) merge.
  MergeSchedule schedule_of(std::int64_t begin, std::int64_t end) const;

  const Numerics& numerics_;
  std::int64_t vocab_;
  std::int64_t leaf_;
};

/// log-softmax of rows that are held whole, in place.
void log_softmax_rows(const Numerics& numerics, Matrix& logits);

}  // namespace shardcheck
