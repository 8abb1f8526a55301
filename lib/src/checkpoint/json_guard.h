// JSON from strangers: text checks, a document parser and a streaming parser that bound depth and memory and
// refuse duplicate keys. Private to the checkpoint folder.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace shardcheck {

/// Deepest nesting of arrays and objects that is read (the reference reader allows 128).
inline constexpr int kMaxJsonDepth = 128;

/// Most values a parsed document may hold: bounds its memory, whatever the bytes.
inline constexpr std::size_t kMaxJsonValues = 1'000'000;

/// Throws InvalidCheckpoint naming `where` and the byte: text that is not UTF-8, starts with a byte order
/// mark or contains NUL (which the JSON lexer would take for the end).
void require_json_text(std::string_view text, const std::string& where);

/// Parses a JSON object. Throws InvalidCheckpoint naming `where`: longer than `limit_bytes`, not JSON, not an
/// object, a duplicate key anywhere, deeper than kMaxJsonDepth, more than kMaxJsonValues values.
nlohmann::json parse_json_object(std::string_view text, const std::string& where, std::size_t limit_bytes);

/// A value for a message: compact JSON, cut like `quote`.
std::string shown(const nlohmann::json& value);

/// The message of a JSON error without the library's prefix, cut to one readable line.
std::string shown(const nlohmann::json::exception& error);

}  // namespace shardcheck
