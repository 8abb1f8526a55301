// Words, key=value pairs and JSON strings of one line, and the spelling that reads back.
#pragma once

#include <string>
#include <string_view>

namespace shardcheck {

class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) { skip_blanks(); }

  bool at_end() const { return rest_.empty(); }

  /// Up to the next blank.
  std::string_view word();
  /// Up to '=', which is consumed. Throws InvalidCase when the word has none.
  std::string_view key();
  /// A plain word, or a JSON string in double quotes. Throws InvalidCase naming `key`.
  std::string value(std::string_view key);

 private:
  template <typename Predicate>
  std::string_view take_while(Predicate predicate);
  void skip_blanks();
  std::string plain(std::string_view key);
  std::string quoted(std::string_view key);
  /// Bytes of the string literal at the front, both quotes included; all of the rest when it does not end.
  std::size_t quoted_length() const;

  std::string_view rest_;
};

/// `value` as it stands in a line: itself, or a JSON string.
std::string spelled(const std::string& value);

}  // namespace shardcheck
