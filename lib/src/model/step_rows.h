// Which rows of a step each rank works on: context-parallel ranks take the tokens of their positions, and
// under sequence parallelism each rank of a tensor-parallel group keeps its share of those.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shardcheck/model/batch.h"

namespace shardcheck {

/// Consecutive rows of one sequence on one context-parallel rank.
struct RowRun {
  std::int64_t sequence = 0;
  std::int64_t first_position = 0;  // of the first row
  std::int64_t rows = 0;
  std::int64_t step_row = 0;   // the first row's place in the step
  std::int64_t local_row = 0;  // and in the rank's rows
  std::int64_t length = 0;     // of the sequence, the step's tokens included
};

class StepRows {
 public:
  /// `ends`: positions at which context ranks end but the last one, ascending.
  StepRows(const BatchStep& step, std::span<const std::int64_t> ends);

  std::int64_t rows() const { return rows_; }
  /// Rows of a context rank, and their runs in the order of the step.
  std::int64_t rows_of(int context_rank) const { return counts_[static_cast<std::size_t>(context_rank)]; }
  const std::vector<RowRun>& runs_of(int context_rank) const {
    return runs_[static_cast<std::size_t>(context_rank)];
  }

  /// Positions [first, last) of sequences that a context rank holds; the last rank's end is open.
  std::int64_t first_position(int context_rank) const {
    return context_rank == 0 ? 0 : ends_[static_cast<std::size_t>(context_rank - 1)];
  }
  std::int64_t last_position(int context_rank, std::int64_t length) const;

  /// Share `rank` of `count` rows over `degree` ranks: consecutive, as even as can be.
  static std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int degree, int rank) {
    return {count * rank / degree, count * (rank + 1) / degree};
  }

 private:
  std::vector<std::int64_t> ends_;
  std::vector<std::vector<RowRun>> runs_;
  std::vector<std::int64_t> counts_;
  std::int64_t rows_ = 0;
};

}  // namespace shardcheck
