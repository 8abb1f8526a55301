#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {
namespace {

constexpr std::array<std::string_view, 6> kAxes = {"tp", "ep", "etp", "pp", "dp", "cp"};
constexpr int kMaxDegree = 1024;
constexpr std::size_t kMaxName = 64;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// "tp4" -> ("tp", 4).
std::pair<std::string, int> parse_axis(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view axis = text.substr(0, digits), number = text.substr(digits);
  if (std::find(kAxes.begin(), kAxes.end(), axis) == kAxes.end()) {
    throw InvalidLayout(
        fmt::format("layout axis '{:.64}' is unknown (allowed: {})", text, fmt::join(kAxes, " ")));
  }
  int degree = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), degree);
  const bool whole = error == std::errc{} && end == number.data() + number.size();
  if (!whole || degree < 1 || degree > kMaxDegree) {
    throw InvalidLayout(fmt::format("layout axis '{:.64}': the degree must be in 1..{}", text, kMaxDegree));
  }
  return {std::string(axis), degree};
}

}  // namespace

int LayoutName::degree(std::string_view axis) const {
  for (const auto& [name, value] : axes) {
    if (name == axis) return value;
  }
  return 1;
}

std::string to_string(const LayoutName& name) {
  std::string text = name.table;
  char separator = ':';
  for (const auto& [axis, degree] : name.axes) {
    if (degree == 1) continue;
    text += fmt::format("{}{}{}", separator, axis, degree);
    separator = ',';
  }
  return text;
}

LayoutName parse_layout_name(std::string_view text) {
  LayoutName name;
  const std::size_t colon = text.find(':');
  name.table = text.substr(0, colon);
  if (name.table.empty() || name.table.size() > kMaxName ||
      !std::all_of(name.table.begin(), name.table.end(), is_name_character)) {
    throw InvalidLayout(
        fmt::format("layout '{:.80}': a table name is 1..{} characters of a-z 0-9 - _", text, kMaxName));
  }
  if (colon == std::string_view::npos) return name;
  std::vector<std::string> seen;
  for (std::size_t begin = colon + 1, comma = begin; comma != std::string_view::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    auto axis = parse_axis(text.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
    if (std::find(seen.begin(), seen.end(), axis.first) != seen.end()) {
      throw InvalidLayout(fmt::format("layout '{:.80}': axis {} appears twice", text, axis.first));
    }
    seen.push_back(axis.first);
    // Degree 1 is the default: dropping it makes equal layouts compare equal.
    if (axis.second != 1) name.axes.push_back(std::move(axis));
  }
  return name;
}

}  // namespace shardcheck
