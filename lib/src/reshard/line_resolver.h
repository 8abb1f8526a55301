// The origin of every line of one shard. Private to the room.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "line_index.h"

namespace shardcheck {

/// Of equal lines the one that continues what came before, else the one that continues longest, else the
/// expected one. A line of zeros tells nothing by itself: it is a line of a tensor where that is one of zeros
/// too and lies beside what lies beside it in the shard, or belongs here; else nothing was written.
class LineResolver {
 public:
  /// `expected`: by line of the shard what belongs there, its index negative for padding.
  LineResolver(const LineIndex& index, const std::vector<LineHash>& lines, std::vector<Line> expected)
      : index_(index), lines_(lines), expected_(std::move(expected)), origins_(lines.size()) {}

  /// nullopt: in no tensor, or zeros that nobody wrote.
  std::vector<std::optional<Line>> resolve();
  /// Of what `resolve` returned, lines of runs in which every line occurs several times.
  std::int64_t ambiguous() const;

 private:
  Line pick(std::size_t i) const;
  std::int64_t length_from(std::size_t i, Line line) const;
  bool is_padding(std::size_t i) const { return lines_[i].zero && expected_[i].index < 0; }
  /// Line i as the neighbour of what the lines beside it are, counted towards them.
  std::optional<Line> beside(std::size_t i, bool behind) const;
  void resolve_forward();
  void extend_backward();
  void take_expected_zeros();
  void take_moved_zeros();

  const LineIndex& index_;
  const std::vector<LineHash>& lines_;
  std::vector<Line> expected_;
  std::vector<std::optional<Line>> origins_;
};

}  // namespace shardcheck
