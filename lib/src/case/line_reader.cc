#include "case/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "case/case_text.h"
#include "shardcheck/case/case.h"

namespace shardcheck {

template <typename Predicate>
std::string_view LineReader::take_while(Predicate predicate) {
  const auto end = std::find_if_not(rest_.begin(), rest_.end(), predicate);
  const auto length = static_cast<std::size_t>(end - rest_.begin());
  const std::string_view taken = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return taken;
}

void LineReader::skip_blanks() { take_while(is_blank); }

std::string_view LineReader::word() {
  const std::string_view taken = take_while([](char c) { return !is_blank(c); });
  skip_blanks();
  return taken;
}

std::string_view LineReader::key() {
  const std::string_view taken = take_while([](char c) { return !is_blank(c) && c != '='; });
  if (rest_.empty() || rest_.front() != '=')
    throw InvalidCase(fmt::format("'{}': every word after the law is key=value", shown(taken)));
  rest_.remove_prefix(1);
  return taken;
}

std::string LineReader::value(std::string_view key) {
  return !rest_.empty() && rest_.front() == '"' ? quoted(key) : plain(key);
}

std::string LineReader::plain(std::string_view key) {
  const std::string_view text = word();
  const bool clean =
      std::all_of(text.begin(), text.end(), [](char c) { return is_printable(c) && c != '"' && c != '\\'; });
  if (!clean) refuse(key, text, "printable ASCII, or a JSON string in double quotes");
  return std::string(text);
}

std::string LineReader::quoted(std::string_view key) {
  const std::string_view literal = rest_.substr(0, quoted_length());
  const nlohmann::json parsed = nlohmann::json::parse(literal, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_string()) refuse(key, literal, "a well-formed JSON string");
  rest_.remove_prefix(literal.size());
  if (!rest_.empty() && !is_blank(rest_.front()))
    refuse(key, literal, "a JSON string followed by a blank or the end of the line");
  skip_blanks();
  return parsed.get<std::string>();
}

std::size_t LineReader::quoted_length() const {
  for (std::size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i] == '\\') {
      ++i;
    } else if (rest_[i] == '"') {
      return i + 1;
    }
  }
  return rest_.size();
}

std::string spelled(const std::string& value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return is_printable(c) && c != '"' && c != '\\';
  });
  if (plain) return value;
  return nlohmann::json(value).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace shardcheck
