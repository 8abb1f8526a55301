#include "line_resolver.h"

#include <algorithm>
#include <set>

namespace shardcheck {
namespace {

constexpr std::size_t kMostCandidates = 64;  // of equal lines, that are followed
constexpr std::int64_t kLookahead = 64;      // lines

bool follows(const std::optional<Line>& line, const std::optional<Line>& last) {
  return line && last && *line == Line{last->entry, last->index + 1};
}

}  // namespace

std::vector<std::optional<Line>> LineResolver::resolve() {
  resolve_forward();
  extend_backward();
  take_expected_zeros();
  take_moved_zeros();
  return origins_;
}

void LineResolver::resolve_forward() {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (is_padding(i)) continue;
    if (lines_[i].zero) {
      origins_[i] = beside(i, true);
    } else if (!index_.find(lines_[i].hash).empty()) {
      origins_[i] = pick(i);
    }
  }
}

Line LineResolver::pick(std::size_t i) const {
  const LineIndex::Equals equals = index_.find(lines_[i].hash);
  if (i > 0 && origins_[i - 1]) {
    const Line next{origins_[i - 1]->entry, origins_[i - 1]->index + 1};
    if (LineIndex::contains(equals, next)) return next;
  }
  Line best = equals.front().second;
  std::int64_t longest = 0;
  const auto consider = [&](const Line& line) {
    if (const std::int64_t length = length_from(i, line); length > longest) {
      longest = length;
      best = line;
    }
  };
  if (LineIndex::contains(equals, expected_[i])) consider(expected_[i]);
  for (std::size_t c = 0; c < std::min(equals.size(), kMostCandidates); ++c) consider(equals[c].second);
  return best;
}

/// Lines from i on that follow each other from `line` on.
std::int64_t LineResolver::length_from(std::size_t i, Line line) const {
  std::int64_t length = 0;
  for (; i < lines_.size() && length < kLookahead && index_.holds(line, lines_[i]); ++i, ++line.index)
    ++length;
  return length;
}

std::optional<Line> LineResolver::beside(std::size_t i, bool behind) const {
  const auto origin_at = [&](std::size_t distance) -> std::optional<Line> {
    const std::size_t reach = behind ? i : lines_.size() - 1 - i;
    if (distance > reach) return std::nullopt;
    return origins_[behind ? i - distance : i + distance];
  };
  const auto near = origin_at(1), far = origin_at(2);
  if (!near) return std::nullopt;
  const bool falls = behind ? follows(far, near) : follows(near, far);
  for (const bool falling : {falls, !falls}) {
    const std::int64_t step = falling == behind ? -1 : 1;
    const Line line{near->entry, near->index + step};
    const bool taken = far && *far == line;
    if (!taken && index_.holds(line, lines_[i])) return line;
  }
  return std::nullopt;
}

void LineResolver::extend_backward() {
  for (std::size_t i = lines_.size(); i-- > 0;) {
    if (lines_[i].zero && !is_padding(i) && !origins_[i]) origins_[i] = beside(i, false);
  }
}

void LineResolver::take_expected_zeros() {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].zero && !origins_[i] && index_.holds(expected_[i], lines_[i])) origins_[i] = expected_[i];
  }
}

/// Lines of zeros that belong to the shard and are not in their place are where nothing else explains zeros.
void LineResolver::take_moved_zeros() {
  std::set<Line> told;
  for (const auto& origin : origins_) {
    if (origin) told.insert(*origin);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (!lines_[i].zero || origins_[i] || is_padding(i)) continue;
    while (next < expected_.size() &&
           (told.contains(expected_[next]) || !index_.holds(expected_[next], lines_[i])))
      ++next;
    if (next == expected_.size()) return;
    origins_[i] = expected_[next++];
  }
}

std::int64_t LineResolver::ambiguous() const {
  std::int64_t ambiguous = 0, run = 0;
  bool is_sure = false;
  for (std::size_t i = 0; i <= lines_.size(); ++i) {
    if (i == lines_.size() || i == 0 || !follows(origins_[i], origins_[i - 1])) {
      ambiguous += is_sure ? 0 : run;
      run = 0;
      is_sure = false;
    }
    if (i == lines_.size() || !origins_[i]) continue;
    ++run;
    is_sure |= index_.find(lines_[i].hash).size() == 1;
  }
  return ambiguous;
}

}  // namespace shardcheck
