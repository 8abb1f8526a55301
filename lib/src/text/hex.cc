#include "shardcheck/text/hex.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string bytes_of_hex(std::string_view text, const std::string& origin) {
  std::string bytes;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    int high = -1;
    for (const char c : line.substr(0, line.find('#'))) {
      if (c == ' ' && high < 0) continue;
      const int digit = digit_of(c);
      if (digit < 0)
        throw InvalidInput(fmt::format("{}:{}: '{}' is no pair of hexadecimal digits", origin, number, c));
      if (high >= 0) bytes += static_cast<char>(high * 16 + digit);
      high = high >= 0 ? -1 : digit;
    }
    if (high >= 0)
      throw InvalidInput(fmt::format("{}:{}: a hexadecimal digit without its other half", origin, number));
  }
  return bytes;
}

std::string hex_of_bytes(std::string_view bytes) {
  constexpr std::size_t kPerLine = 16;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i]));
    text += (i + 1) % kPerLine == 0 || i + 1 == bytes.size() ? '\n' : ' ';
  }
  return text;
}

}  // namespace shardcheck
