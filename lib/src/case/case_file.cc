#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxBatchCases = 10'000;

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

/// Headers and case lines in their order; `most` are allowed.
CaseBatch parse_lines(std::string_view text, const std::string& origin, std::size_t most) {
  if (text.size() > kMaxFileBytes)
    throw InvalidCase(fmt::format("{}: a case file of {} bytes: allowed is at most {}", origin, text.size(),
                                  kMaxFileBytes));
  CaseBatch batch;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.empty()) continue;
    if (line.front() == '#') {
      std::pair<std::string, std::string> header;
      if (parse_header(trimmed(line.substr(1)), header)) batch.header.push_back(std::move(header));
      continue;
    }
    if (batch.lines.size() == most)
      throw InvalidCase(fmt::format(
          "{}:{}: {}; the first is on line {}", origin, line_number,
          most == 1 ? "a second case line, and one is allowed" : fmt::format("more than {} case lines", most),
          batch.lines.front().number));
    try {
      batch.lines.push_back({line_number, parse_case(line)});
    } catch (const InvalidCase& error) {
      throw InvalidCase(fmt::format("{}:{}: {}", origin, line_number, error.what()));
    }
  }
  if (batch.lines.empty()) throw InvalidCase(fmt::format("{}: no case line", origin));
  return batch;
}

}  // namespace

CaseFile parse_case_file(std::string_view text, const std::string& origin) {
  CaseBatch batch = parse_lines(text, origin, 1);
  return {std::move(batch.header), std::move(batch.lines.front().value)};
}

CaseBatch parse_case_batch(std::string_view text, const std::string& origin) {
  return parse_lines(text, origin, kMaxBatchCases);
}

std::string print_case_file(const CaseFile& file) {
  std::string text;
  for (const auto& [key, value] : file.header) text += fmt::format("# {}: {}\n", key, on_one_line(value));
  return text + print_case(file.value) + "\n";
}

}  // namespace shardcheck
