#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// "key: value" with a key in lower-case words; anything else in a comment is prose.
bool parse_header(std::string_view comment, std::pair<std::string, std::string>& out) {
  const std::size_t colon = comment.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view key = comment.substr(0, colon);
  const bool is_word =
      std::all_of(key.begin(), key.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  if (!is_word) return false;
  out = {std::string(key), std::string(trimmed(comment.substr(colon + 1)))};
  return true;
}

/// One line of a file, whatever the text holds.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return std::string(trimmed(text));
}

}  // namespace

CaseFile parse_case_file(std::string_view text, const std::string& origin) {
  if (text.size() > kMaxFileBytes)
    throw InvalidCase(fmt::format("{}: a case file of {} bytes: allowed is at most {}", origin, text.size(),
                                  kMaxFileBytes));
  CaseFile file;
  int line_number = 0;
  int case_line = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.empty()) continue;
    if (line.front() == '#') {
      std::pair<std::string, std::string> header;
      if (parse_header(trimmed(line.substr(1)), header)) file.header.push_back(std::move(header));
      continue;
    }
    if (case_line != 0)
      throw InvalidCase(fmt::format("{}:{}: a second case line; the first is on line {} and one is allowed",
                                    origin, line_number, case_line));
    case_line = line_number;
    try {
      file.value = parse_case(line);
    } catch (const InvalidCase& error) {
      throw InvalidCase(fmt::format("{}:{}: {}", origin, line_number, error.what()));
    }
  }
  if (case_line == 0) throw InvalidCase(fmt::format("{}: no case line", origin));
  return file;
}

std::string print_case_file(const CaseFile& file) {
  std::string text;
  for (const auto& [key, value] : file.header) text += fmt::format("# {}: {}\n", key, on_one_line(value));
  return text + print_case(file.value) + "\n";
}

}  // namespace shardcheck
