#include "line_index.h"

#include <algorithm>
#include <iterator>

#include "tensor/at.h"

namespace shardcheck {

void LineIndex::add(std::int64_t entry, std::vector<LineHash> lines) {
  for (std::size_t i = 0; i < lines.size(); ++i)
    sorted_.emplace_back(lines[i].hash, Line{entry, static_cast<std::int64_t>(i)});
  by_entry_[entry] = std::move(lines);
}

void LineIndex::sort() { std::ranges::sort(sorted_); }

LineIndex::Equals LineIndex::find(std::uint64_t hash) const {
  const auto first = std::ranges::lower_bound(sorted_, hash, {}, &Hashed::first);
  const auto last = std::ranges::upper_bound(sorted_, hash, {}, &Hashed::first);
  return {first, last};
}

bool LineIndex::contains(Equals equals, const Line& line) {
  return std::ranges::binary_search(equals, line, {}, &Hashed::second);
}

bool LineIndex::holds(const Line& line, const LineHash& wanted) const {
  const auto found = by_entry_.find(line.entry);
  return found != by_entry_.end() && line.index >= 0 && line.index < std::ssize(found->second) &&
         found->second[at(line.index)].hash == wanted.hash;
}

}  // namespace shardcheck
