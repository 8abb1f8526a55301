#include "folded_names.h"

#include <fmt/format.h>

#include "shardcheck/layout/layout_text.h"

namespace shardcheck {

std::string name_pattern(const LayoutEntry& entry) {
  const std::int64_t layer = entry.parts.front().layer;
  const std::string number = fmt::format(".{}.", layer);
  const std::size_t at = layer < 0 ? std::string::npos : entry.name.find(number);
  return at == std::string::npos ? entry.name : std::string(entry.name).replace(at, number.size(), ".{}.");
}

std::string folded_name(const Layout& layout, const std::vector<std::int64_t>& entries) {
  const LayoutEntry& first = layout.entries[static_cast<std::size_t>(entries.front())];
  if (entries.size() == 1) return first.name;
  std::vector<int> layers;
  for (const std::int64_t entry : entries) {
    layers.push_back(static_cast<int>(layout.entries[static_cast<std::size_t>(entry)].parts.front().layer));
  }
  const std::string pattern = name_pattern(first);
  const std::size_t at = pattern.find("{}");
  return at == std::string::npos
             ? pattern
             : std::string(pattern).replace(at, 2, fmt::format("{{{}}}", ranges_text(layers)));
}

}  // namespace shardcheck
