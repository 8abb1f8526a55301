#include <algorithm>
#include <numeric>

#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

/// Levenshtein distance: insertions, deletions and substitutions, one row at a time.
std::size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t substituted = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& known) {
  const std::string* nearest = nullptr;
  std::size_t smallest = word.size() / 2 + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < smallest) {
      smallest = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::string() : *nearest;
}

}  // namespace shardcheck
