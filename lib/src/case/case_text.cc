#include "case/case_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kLimit = 60;
  std::string out;
  for (char c : text.substr(0, kLimit)) out += is_printable(c) || c == ' ' ? c : '?';
  if (text.size() > kLimit) out += "...";
  return out;
}

void refuse(std::string_view key, std::string_view value, std::string_view allowed) {
  throw InvalidCase(fmt::format("{}={}: allowed is {}", key, shown(value), allowed));
}

bool is_name(std::string_view text) {
  return !text.empty() && is_lower(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool is_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (!is_name(text.substr(0, colon))) return false;
  if (colon == std::string_view::npos) return true;
  const std::string_view argument = text.substr(colon + 1);
  return !argument.empty() && std::all_of(argument.begin(), argument.end(), [](char c) {
    return is_lower(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
  });
}

}  // namespace shardcheck
