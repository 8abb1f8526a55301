#include "checkpoint/layout_names.h"

#include <fmt/format.h>

#include <vector>

#include "text/messages.h"

namespace shardcheck {
namespace {

std::vector<std::string> names_without(const std::set<std::string_view>& all,
                                       const std::set<std::string_view>& known) {
  std::vector<std::string> names;
  for (const std::string_view name : all) {
    if (!known.contains(name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace

std::set<std::string_view> names_on_rank(const Layout& layout, int rank) {
  std::set<std::string_view> names;
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.placed.held_by(rank)) names.insert(entry.file_name());
  }
  return names;
}

std::set<std::string_view> names_of(const SafetensorsFile& file) {
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : file.header().entries) names.insert(entry.name);
  return names;
}

void require_entry_names(const std::set<std::string_view>& expected, const std::set<std::string_view>& stored,
                         const std::string& where, std::string_view authority) {
  const auto missing = names_without(expected, stored);
  const auto extra = names_without(stored, expected);
  if (missing.empty() && extra.empty()) return;
  std::string message = fmt::format("{}: the tensors do not match {}", where, authority);
  if (!missing.empty()) message += fmt::format("; {} missing: {}", missing.size(), quote_some(missing));
  if (!extra.empty()) message += fmt::format("; {} extra: {}", extra.size(), quote_some(extra));
  throw InvalidCheckpoint(message);
}

}  // namespace shardcheck
