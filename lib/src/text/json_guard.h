// JSON from strangers: text checks and a document parser that bound depth and memory and refuse duplicate
// keys. Private to the library; the caller names the exception its own readers promise.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// Deepest nesting of arrays and objects that is read (the reference reader allows 128).
inline constexpr int kMaxJsonDepth = 128;

/// Most values a parsed document may hold: bounds its memory, whatever the bytes.
inline constexpr std::size_t kMaxJsonValues = 1'000'000;

namespace json_guard {
void require_text(std::string_view text, const std::string& where);
nlohmann::json parse_object(std::string_view text, const std::string& where, std::size_t limit_bytes);

template <typename Refusal, typename Function>
auto refusing_as(Function function) {
  try {
    return function();
  } catch (const InvalidInput& refusal) {
    throw Refusal(refusal.what());
  }
}
}  // namespace json_guard

/// Throws Refusal naming `where` and the byte: text that is not UTF-8, starts with a byte order mark or
/// contains NUL (which the JSON lexer would take for the end).
template <typename Refusal>
void require_json_text(std::string_view text, const std::string& where) {
  json_guard::refusing_as<Refusal>([&] { json_guard::require_text(text, where); });
}

/// Parses a JSON object. Throws Refusal naming `where`: longer than `limit_bytes`, not JSON, not an object, a
/// duplicate key anywhere, deeper than kMaxJsonDepth, more than kMaxJsonValues values.
template <typename Refusal>
nlohmann::json parse_json_object(std::string_view text, const std::string& where, std::size_t limit_bytes) {
  return json_guard::refusing_as<Refusal>([&] { return json_guard::parse_object(text, where, limit_bytes); });
}

/// A value for a message: compact JSON, cut like `quote`.
std::string shown(const nlohmann::json& value);

/// The message of a JSON error without the library's prefix, cut to one readable line.
std::string shown(const nlohmann::json::exception& error);

}  // namespace shardcheck
