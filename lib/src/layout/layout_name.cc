#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {
namespace {

constexpr int kMaxDegree = Mesh::kMaxDegree;
constexpr std::size_t kMaxName = 64;
constexpr std::string_view kFirst = "first", kLast = "last";  // layers of the end stages

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// "tp4" -> ("tp", 4).
std::pair<std::string, int> parse_axis(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view axis = text.substr(0, digits), number = text.substr(digits);
  if (!axis_from_name(axis) && axis != kFirst && axis != kLast) {
    throw InvalidLayout(fmt::format(
        "layout axis '{:.64}' is unknown (allowed: tp ep etp pp dp cp, and first and last for the "
        "layers of the end stages)",
        text));
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

Mesh LayoutName::mesh() const {
  std::vector<std::pair<Axis, int>> known;
  for (const auto& [name, value] : axes) {
    const auto axis = axis_from_name(name);
    if (!axis)
      throw InvalidLayout(fmt::format("layout axis '{:.64}' is unknown (allowed: tp ep etp pp dp cp)", name));
    known.emplace_back(*axis, value);
  }
  return Mesh(std::move(known));
}

std::string to_string(const LayoutName& name) {
  std::string text = name.table;
  char separator = ':';
  const auto add = [&](std::string_view axis, int value, int usual) {
    if (value == usual) return;
    text += fmt::format("{}{}{}", separator, axis, value);
    separator = ',';
  };
  for (const auto& [axis, degree] : name.axes) add(axis, degree, axis == to_string(Axis::etp) ? 0 : 1);
  add(kFirst, name.first_stage_layers, 0);
  add(kLast, name.last_stage_layers, 0);
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
    if (axis.first == kFirst) {
      name.first_stage_layers = axis.second;
    } else if (axis.first == kLast) {
      name.last_stage_layers = axis.second;
    } else if (axis.second != 1 || axis.first == to_string(Axis::etp)) {
      // Degree 1 is the default, and dropping it makes equal layouts compare equal; without etp, experts are
      // cut over tp.
      name.axes.push_back(std::move(axis));
    }
  }
  if ((name.first_stage_layers > 0 || name.last_stage_layers > 0) && name.degree("pp") == 1) {
    throw InvalidLayout(fmt::format("layout '{:.80}': {} and {} need an axis pp", text, kFirst, kLast));
  }
  return name;
}

}  // namespace shardcheck
