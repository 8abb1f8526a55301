#include "text/messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardcheck {
namespace {

bool is_continuation(char byte) noexcept { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// The longest prefix of at most `limit` bytes that does not cut a UTF-8 sequence.
std::string_view prefix(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && is_continuation(text[limit])) --limit;
  return text.substr(0, limit);
}

struct Utf8Form {
  unsigned char lead_low, lead_high;      // range of the first byte
  unsigned char second_low, second_high;  // range of the second byte
  int length;
};

// RFC 3629, section 4: overlong forms, surrogates and values above U+10FFFF are excluded by the second byte.
constexpr Utf8Form kUtf8Forms[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

/// Length of the valid sequence at the start of `text`, 0 when there is none.
std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  for (const Utf8Form& form : kUtf8Forms) {
    if (lead < form.lead_low || lead > form.lead_high) continue;
    const auto length = static_cast<std::size_t>(form.length);
    if (text.size() < length) return 0;
    const auto second = static_cast<unsigned char>(text[1]);
    if (second < form.second_low || second > form.second_high) return 0;
    for (std::size_t i = 2; i < length; ++i) {
      if (!is_continuation(text[i])) return 0;
    }
    return length;
  }
  return 0;
}

}  // namespace

std::string quote(std::string_view text) {
  const std::string_view head = prefix(text, kShownBytes);
  const bool is_utf8 = !find_invalid_utf8(head);
  std::string result = "'";
  for (const char c : head) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 ? is_utf8 : byte >= 0x20 && byte != 0x7F;
    if (plain) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", byte);
    }
  }
  if (head.size() < text.size()) result += fmt::format("...({} bytes)", text.size());
  return result + "'";
}

std::string shorten(std::string_view text, std::size_t limit) {
  const std::string_view head = prefix(text, limit);
  return head.size() < text.size() ? fmt::format("{}...", head) : std::string(head);
}

std::string quote_some(const std::vector<std::string>& names) {
  constexpr std::size_t kShownNames = 5;
  const std::size_t shown = std::min(names.size(), kShownNames);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + quote(names[i]);
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace shardcheck
