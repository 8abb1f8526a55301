#include "model/step_rows.h"

#include <algorithm>

namespace shardcheck {

StepRows::StepRows(const BatchStep& step, std::span<const std::int64_t> ends)
    : ends_(ends.begin(), ends.end()), runs_(ends.size() + 1), counts_(ends.size() + 1) {
  for (const SequenceChunk& chunk : step) {
    const std::int64_t length = chunk.first + std::ssize(chunk.ids);
    for (int rank = 0; rank < static_cast<int>(runs_.size()); ++rank) {
      const std::int64_t begin = std::max(chunk.first, first_position(rank));
      const std::int64_t end = last_position(rank, length);
      if (begin >= end) continue;
      auto& count = counts_[static_cast<std::size_t>(rank)];
      runs_[static_cast<std::size_t>(rank)].push_back(
          {chunk.sequence, begin, end - begin, rows_ + begin - chunk.first, count, length});
      count += end - begin;
    }
    rows_ += std::ssize(chunk.ids);
  }
}

std::int64_t StepRows::last_position(int context_rank, std::int64_t length) const {
  const auto at = static_cast<std::size_t>(context_rank);
  return at < ends_.size() ? std::min(ends_[at], length) : length;
}

}  // namespace shardcheck
