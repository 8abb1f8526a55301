// Lines of tensors by their hash: rows, columns, or the elements of vectors. Private to the room.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace shardcheck {

struct LineHash {
  std::uint64_t hash = 0;
  bool zero = true;  // every bit of the line
};

struct Line {
  std::int64_t entry = 0, index = 0;
  auto operator<=>(const Line&) const = default;
};

/// The lines of all file tensors that can be exchanged for each other.
class LineIndex {
 public:
  using Hashed = std::pair<std::uint64_t, Line>;
  /// Equal lines, by entry and index: a part of the index, of any size.
  using Equals = std::span<const Hashed>;

  void add(std::int64_t entry, std::vector<LineHash> lines);
  /// Once, when all lines are there.
  void sort();

  Equals find(std::uint64_t hash) const;
  static bool contains(Equals equals, const Line& line);
  /// Whether the tensors have that line, with that hash.
  bool holds(const Line& line, const LineHash& wanted) const;

 private:
  std::vector<Hashed> sorted_;
  std::map<std::int64_t, std::vector<LineHash>> by_entry_;
};

}  // namespace shardcheck
